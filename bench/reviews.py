"""Load on the webhook alone: AdmissionReviews over TLS, kept-alive connections, as the API server sends them.

Run in a process of its own, so that its CPU time is not the webhook's:
``python -m bench.reviews URL CA_FILE NAMESPACE IMAGE COUNT CONCURRENCY`` prints one JSON line.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench import load
from polyarch.placement import names


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


async def main(url: str, ca: str, namespace: str, image: str, count: int, concurrency: int) -> dict[str, float]:
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=ca)
    body = review(image, namespace, "c0ffee00-0000-4000-8000-000000000000")
    head = (
        f"POST {names.POD_WEBHOOK_PATH}?timeout=5s HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nAccept: application/json\r\n\r\n"
    ).encode()
    left = count
    times: list[float] = []
    patched = 0

    async def connection() -> None:
        nonlocal left, patched
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        try:
            while left > 0:
                left -= 1
                begin = time.perf_counter()
                writer.write(head + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in answer.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                content = await reader.readexactly(length)
                times.append((time.perf_counter() - begin) * 1000)
                patched += b'"patch"' in content
        finally:
            writer.close()
            await writer.wait_closed()

    begin = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(concurrency)))
    seconds = time.perf_counter() - begin
    times.sort()
    return {
        "reviews": len(times),
        "patched": patched,
        "bytes": len(body),
        "seconds": seconds,
        "per_second": len(times) / seconds,
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[len(times) * 99 // 100],
    }


if __name__ == "__main__":
    url, ca, namespace, image, count, concurrency = sys.argv[1:]
    assert Path(ca).exists()
    print(json.dumps(asyncio.run(main(url, ca, namespace, image, int(count), int(concurrency)))))
