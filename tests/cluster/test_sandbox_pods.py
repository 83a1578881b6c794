"""Pods of polyarch's own image are run as processes, with the real controllers around them (SB-011)."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from polyarch.kube.client.client import Client
from polyarch.kube.resources import EVENTS, JOBS, PODS, SECRETS
from polyarch.placement.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.pods.containers import records_of
from polyarch.sandbox.processes import Record

SECONDS = 60.0
Document = dict[str, Any]


async def until(look: Callable[[], Any], what: str) -> Any:
    """The first true result of ``look``, which may be a coroutine function."""
    found = None
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                found = look()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not so after {SECONDS:.0f} s: {what}; last seen: {found}") from None


def pod(name: str, *args: str, **container: Any) -> Document:
    spec = container.pop("spec", {})
    main = {"name": "main", "image": DEFAULT_IMAGE, "args": list(args), **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [main], **spec},
    }


async def status_of(client: Client, namespace: str, name: str) -> Document:
    status: Document = (await client.get(PODS, name, namespace=namespace)).get("status", {})
    return status


def container_of(status: Document) -> Document:
    found: Document = (status.get("containerStatuses") or [{"state": {}, "lastState": {}}])[0]
    return found


def processes_of(sandbox: Sandbox, namespace: str) -> list[Record]:
    records = processes.load(records_of(sandbox.folder.root)).values()
    return [each for each in records if each.pod.startswith(f"{namespace}/") and processes.is_running(each)]


async def test_sb_011_a_command_runs_to_its_end_and_its_code_and_words_are_in_the_status(
    client: Client, namespace: str
) -> None:
    document = pod("version", "--version", spec={"restartPolicy": "Never"})
    await client.create(PODS, document, namespace=namespace)

    async def done() -> Document | None:
        status = await status_of(client, namespace, "version")
        return status if status.get("phase") in {"Succeeded", "Failed"} else None

    status = await until(done, "the pod has ended")
    assert status["phase"] == "Succeeded"
    assert container_of(status)["state"]["terminated"]["exitCode"] == 0


async def test_sb_011_a_job_fails_with_the_code_and_the_last_words_of_its_command(
    client: Client, namespace: str
) -> None:
    """A sentence of polyarch about the file that is not there stands in the pod's status, from the end of its log."""
    words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    spec = pod("x", "lint", "/no/such/file", **words, spec={"restartPolicy": "Never"})["spec"]
    job = {"metadata": {"name": "lint"}, "spec": {"backoffLimit": 0, "template": {"spec": spec}}}
    await client.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **job}, namespace=namespace)

    async def failed() -> bool:
        status = (await client.get(JOBS, "lint", namespace=namespace)).get("status", {})
        return bool(status.get("failed"))

    await until(failed, "the Job has failed")
    (one,) = (await client.list(PODS, namespace=namespace)).items
    ended = container_of(one["status"])["state"]["terminated"]
    assert one["status"]["phase"] == "Failed"
    assert (ended["exitCode"], ended["reason"]) == (2, "Error")
    assert "/no/such/file" in ended["message"]


async def test_sb_011_a_job_of_polyarch_completes(client: Client, namespace: str) -> None:
    spec = pod("x", "--version", spec={"restartPolicy": "Never"})["spec"]
    job = {"metadata": {"name": "version"}, "spec": {"completions": 2, "parallelism": 2, "template": {"spec": spec}}}
    await client.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **job}, namespace=namespace)

    async def done() -> bool:
        status = (await client.get(JOBS, "version", namespace=namespace)).get("status", {})
        return bool(status.get("succeeded") == 2 and status.get("completionTime"))

    await until(done, "the Job is complete")


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a"}}}]},
            "CreateContainerConfigError",
            'secret "none" not found',
            id="a variable of a Secret that is not there",
        ),
        pytest.param(
            {"command": ["sh", "-c", "true"]}, "RunContainerError", "executable file not found", id="no shell"
        ),
    ],
)
async def test_sb_011_a_container_that_cannot_be_started_says_why(
    client: Client, namespace: str, change: Document, reason: str, said: str
) -> None:
    await client.create(PODS, pod("broken", **change), namespace=namespace)

    async def waiting() -> Document | None:
        found = container_of(await status_of(client, namespace, "broken"))["state"].get("waiting", {})
        return found if found.get("reason") == reason else None

    assert said in (await until(waiting, reason))["message"]


async def test_sb_011_a_pod_waits_for_a_missing_secret_with_an_event_and_starts_when_it_comes(
    client: Client, namespace: str
) -> None:
    volumes = {"volumes": [{"name": "c", "secret": {"secretName": "late"}}], "restartPolicy": "Never"}
    mounts = [{"name": "c", "mountPath": "/etc/c"}]
    args = ("lint", "/etc/c/pod.yaml")
    await client.create(PODS, pod("waits", *args, volumeMounts=mounts, spec=volumes), namespace=namespace)

    async def told() -> bool:
        events = (await client.list(EVENTS, namespace=namespace)).items
        return any(each["reason"] == "FailedMount" and '"late" not found' in each["note"] for each in events)

    await until(told, "an event FailedMount")
    assert (
        container_of(await status_of(client, namespace, "waits"))["state"]["waiting"]["reason"] == "ContainerCreating"
    )
    content = base64.b64encode(b"kind: List\napiVersion: v1\nitems: []\n").decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "data": {"pod.yaml": content}}
    await client.create(SECRETS, secret, namespace=namespace)

    async def done() -> bool:
        return (await status_of(client, namespace, "waits")).get("phase") == "Succeeded"

    await until(done, "the command has read the file at its mountPath")


# -- a Deployment of a role that serves -------------------------------------------------------------------------------


@pytest.fixture
async def gate() -> AsyncIterator[Callable[[bool], Any]]:
    """A port on this machine that answers when the test says so: the readiness of the test's pods."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def open_it(wanted: bool) -> int:
        nonlocal server
        if wanted and not server.is_serving():
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        elif not wanted:
            server.close()
        return port

    yield open_it
    server.close()
