"""Whoever can reach the port of a webhook: made-up reviews, and requests that never end."""

import asyncio
import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyarch.kube.admission import API_VERSION, KIND

TLS = ssl.create_default_context()
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE


def review(document: dict[str, Any], namespace: str, *, operation: str = "CREATE", **request: Any) -> bytes:
    """An AdmissionReview of a pod, as an API server would send it."""
    pods = {"group": "", "version": "v1", "resource": "pods"}
    asked = {
        "uid": "made-up",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": pods,
        "operation": operation,
        "namespace": namespace,
        "object": document,
        "userInfo": {"username": "nobody"},
        **request,
    }
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "request": asked}).encode()


async def post(host: str, port: int, path: str, body: bytes, *, tls: bool = True) -> tuple[int, bytes]:
    """Status and body of the answer, on a connection of its own."""
    reader, writer = await asyncio.open_connection(host, port, ssl=TLS if tls else None)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    head_, _, content = answer.partition(b"\r\n\r\n")
    return int(head_.split()[1]), content


async def post_review(host: str, port: int, path: str, body: bytes) -> dict[str, Any]:
    """The response of a review, with its patch decoded."""
    status, content = await post(host, port, path, body)
    assert status == 200, content
    response: dict[str, Any] = json.loads(content)["response"]
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response


async def connect(host: str, port: int, sent: bytes, size: int, *, tls: bool = True) -> None:
    """Sends ``sent`` and then so many bytes, and waits for ever; returns when the connection is closed."""
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=TLS if tls else None)
    except OSError:
        return
    try:
        writer.write(sent)
        while size > 0 and not writer.transport.is_closing():
            writer.write(b" " * min(size, 65536))
            size -= 65536
            await writer.drain()
        await reader.read()
    except OSError:
        return
    finally:
        writer.transport.abort()


def unfinished(path: str, size: int) -> bytes:
    """The head of a POST whose body has one byte more than will be sent."""
    return f"POST {path}?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Length: {size + 1}\r\n\r\n".encode()


def memory(pid: int) -> float:
    """The most MiB that the process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


async def while_attacked(callers: int, attack: Callable[[], Any], done: Callable[[], Any]) -> Any:
    """``done`` while so many callers attack."""
    attacks = [asyncio.create_task(attack()) for _ in range(callers)]
    try:
        await asyncio.sleep(1)
        return await done()
    finally:
        for each in attacks:
            each.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)
