"""Load on the webhook alone: AdmissionReviews over TLS on kept-alive connections, as the API server sends them.

``python -m bench.reviews HOST:PORT/PATH NAME CA_FILE NAMESPACE IMAGE COUNT CONCURRENCY`` prints one JSON line; NAME is
the name in the webhook's certificate. It runs in a process of
its own, so that its CPU time does not count for the webhook, and on bare asyncio protocols, so that it sends requests
faster than any webhook answers.
"""

import asyncio
import base64
import json
import re
import ssl
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench import load


def review(image: str, namespace: str, uid: str) -> bytes:
    """An AdmissionReview of about 10 KiB: a pod with the fields that the API server has defaulted and managed."""
    pod = load.pod(image)
    spec = pod["spec"]
    container = spec["containers"][0]
    container |= {
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "env": [{"name": f"SETTING_{number}", "value": "x" * 60} for number in range(60)],
        "volumeMounts": [
            {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        ],
    }
    spec |= {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}],
    }
    pod["metadata"]["managedFields"] = [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {f"f:field-{number}": {".": {}, "f:name": {}} for number in range(60)},
        }
    ]
    pods = {"group": "", "version": "v1"}
    request = {
        "uid": uid,
        "kind": {**pods, "kind": "Pod"},
        "resource": {**pods, "resource": "pods"},
        "requestKind": {**pods, "kind": "Pod"},
        "requestResource": {**pods, "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


class Connection(asyncio.Protocol):
    """One kept-alive connection that sends the next review as soon as the last one is answered."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop only looks like one
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, content = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        [length] = LENGTH.findall(head)
        if len(content) < int(length):
            return
        self._load.answered(time.perf_counter() - self._sent, content)
        self._buffer = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(exc)

    def _send(self) -> None:
        assert self._transport is not None
        if self._load.left == 0:
            self._transport.close()
            return
        self._load.left -= 1
        self._sent = time.perf_counter()
        self._transport.write(self._load.request)


class Load:
    """``count`` equal requests, and their results."""

    def __init__(self, request: bytes, count: int) -> None:
        self.request = request
        self.left = count
        self.seconds: list[float] = []
        self.patched = 0
        self.tolerated = 0

    def answered(self, seconds: float, content: bytes) -> None:
        self.seconds.append(seconds)
        patch = PATCH.search(content)
        self.patched += patch is not None
        self.tolerated += patch is not None and b"/spec/tolerations" in base64.b64decode(patch[1])


PATCH = re.compile(rb'"patch":"([^"]*)"')
LENGTH = re.compile(rb"(?i)content-length: *([0-9]+)")


async def main(
    address: str, name: str, ca: str, namespace: str, image: str, count: int, concurrency: int
) -> dict[str, float]:
    address, _, path = address.partition("/")
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    body = review(image, namespace, "c0ffee00-0000-4000-8000-000000000000")
    head = (
        f"POST /{path}?timeout=5s HTTP/1.1\r\nHost: {name}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nAccept: application/json\r\n\r\n"
    ).encode()
    load = Load(head + body, count)

    async def connection() -> None:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: Connection(load), host, int(port), ssl=context, server_hostname=name
        )
        await protocol.closed

    begin = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(concurrency)))
    seconds = time.perf_counter() - begin
    times = sorted(1000 * each for each in load.seconds)
    return {
        "reviews": len(times),
        "patched": load.patched,
        "tolerated": load.tolerated,
        "bytes": len(body),
        "seconds": seconds,
        "per_second": len(times) / seconds,
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[len(times) * 99 // 100],
    }


if __name__ == "__main__":
    address, name, ca, namespace, image, count, concurrency = sys.argv[1:]
    assert Path(ca).exists()
    print(json.dumps(uvloop.run(main(address, name, ca, namespace, image, int(count), int(concurrency)))))
