"""``kubectl logs`` of pods that are run, through the nodes' own kubelet API."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from polyarch import __version__
from polyarch.kube.client import Client
from polyarch.kube.resources import PODS
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox.certificates import KUBELET_CLIENT
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import kubelet_socket

SECONDS = 60.0
Kubectl = Callable[..., Any]


@pytest.fixture
def kubectl(sandbox: Sandbox, namespace: str, peer: Callable[[str], str]) -> Kubectl:
    program = peer("kubectl")

    async def run(*arguments: str, wait: bool = True) -> Any:
        process = await asyncio.create_subprocess_exec(
            *(program, f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={namespace}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if not wait:
            return process
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode()

    return run


async def start(client: Client, namespace: str, image: str, *args: str, restart: str = "Always") -> None:
    main = {"name": "main", "image": image, "args": list(args)}
    spec = {"containers": [main], "restartPolicy": restart, "terminationGracePeriodSeconds": 5}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    await client.create(PODS, document, namespace=namespace)


async def until(client: Client, namespace: str, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            status = (await client.get(PODS, "a", namespace=namespace)).get("status", {})
            (container,) = status.get("containerStatuses") or [{"state": {}}]
            if condition(container):
                return container
            await asyncio.sleep(0.1)


@pytest.fixture
async def speaking(client: Client, namespace: str) -> None:
    """A pod of a role without rights: it says again and again what it may not read."""
    args = ("run", "placement-controller", "--health-port=0", "--metrics-port=0")
    await start(client, namespace, DEFAULT_IMAGE, *args)
    await until(client, namespace, lambda container: "running" in container["state"])


@pytest.mark.req("SB-013")
async def test_the_log_of_a_running_pod(kubectl: Kubectl, speaking: None) -> None:
    async def lines(*options: str) -> list[str]:
        code, output, errors = await kubectl("logs", "a", *options)
        assert code == 0, errors
        return output.splitlines()

    async with asyncio.timeout(SECONDS):
        while len(found := await lines()) < 4:
            await asyncio.sleep(0.2)
    events = [json.loads(line) for line in found if line.startswith("{")]
    assert all("event" in each for each in events)
    assert len(await lines("--tail=2")) == 2
    assert await lines("--tail=0") == []
    assert len("".join(await lines("--limit-bytes=100"))) <= 100
    assert await lines("--since-time=2099-01-01T00:00:00Z") == []
    told = [json.loads(line)["timestamp"][:19] for line in found if line.startswith("{")]
    stamped = [line for line in await lines("--timestamps") if "{" in line]
    assert [line[:19] for line in stamped[: len(told)]] == told


@pytest.mark.req("SB-013")
async def test_a_log_is_followed_until_its_container_ends(
    client: Client, namespace: str, kubectl: Kubectl, speaking: None
) -> None:
    process = await kubectl("logs", "-f", "a", wait=False)
    async with asyncio.timeout(SECONDS):
        first = await process.stdout.readline()
        assert first
        await client.delete(PODS, "a", namespace=namespace)
        rest = await process.stdout.read()
        assert await process.wait() == 0
    assert rest == b"" or rest.endswith(b"\n"), "whole lines, to the last"


@pytest.mark.req("SB-013")
async def test_the_log_of_the_start_before(client: Client, namespace: str, kubectl: Kubectl) -> None:
    await start(client, namespace, DEFAULT_IMAGE, "lint", "/no/such/file")
    await until(client, namespace, lambda container: container.get("restartCount", 0) >= 1)
    code, output, errors = await kubectl("logs", "-p", "a")
    assert code == 0, errors
    assert "/no/such/file" in output


@pytest.mark.req("SB-013")
async def test_a_finished_pod_keeps_its_log(client: Client, namespace: str, kubectl: Kubectl) -> None:
    await start(client, namespace, DEFAULT_IMAGE, "--version", restart="Never")
    await until(client, namespace, lambda container: "terminated" in container["state"])
    code, output, _ = await kubectl("logs", "a")
    assert (code, output.strip()) == (0, __version__)
    code, _, errors = await kubectl("logs", "-p", "a")
    assert code == 1
    assert "previous terminated container" in errors


@pytest.mark.req("SB-013")
async def test_a_pod_that_is_only_played_says_so(client: Client, namespace: str, kubectl: Kubectl) -> None:
    await start(client, namespace, "nginx:1.27")
    await until(client, namespace, lambda container: "running" in container["state"])
    code, output, _ = await kubectl("logs", "a")
    assert code == 0
    assert "only played" in output


@pytest.mark.req("SB-013")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("exec", "a", "--", "polyarch", "--version"), "is a process of this machine"),
        (("attach", "a"), "kubectl logs -f"),
        (("port-forward", "a", "18081:8081"), "the pod listens on 127."),
    ],
    ids=["exec", "attach", "port-forward"],
)
async def test_what_is_not_served_says_what_to_use_instead(
    client: Client, namespace: str, kubectl: Kubectl, speaking: None, command: tuple[str, ...], said: str
) -> None:
    if command[0] == "port-forward":
        process = await kubectl(*command, wait=False)
        try:
            async with asyncio.timeout(SECONDS):
                line = (await process.stderr.readline()).decode()
        finally:
            process.kill()
            await process.communicate()
        assert said in line
        return
    code, _, errors = await kubectl(*command)
    assert code != 0
    assert said in errors


async def asked(sandbox: Sandbox, context: ssl.SSLContext) -> bytes:
    """The first line of the endpoint's answer; empty if it hangs up."""
    socket = kubelet_socket(sandbox.folder.root)
    reader, writer = await asyncio.open_unix_connection(socket, ssl=context, server_hostname="kubernetes")
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")
    try:
        async with asyncio.timeout(SECONDS):
            return await reader.readline()
    except (ssl.SSLError, ConnectionError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


@pytest.mark.req("SB-013")
async def test_only_the_api_server_is_answered(sandbox: Sandbox) -> None:
    """An administrator's certificate is of the same CA, and yet not the API server's."""
    context = ssl.create_default_context(cafile=str(sandbox.ca))
    assert await asked(sandbox, context) == b"", "without a certificate"
    for name, status in (("admin", b"403"), (KUBELET_CLIENT, b"200")):
        files = sandbox.pki.client(name)
        context.load_cert_chain(files.certificate, files.key)
        assert status in await asked(sandbox, context)
