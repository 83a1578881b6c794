"""Pods of polyarch's own image are run as processes, with the real controllers around them."""

import asyncio
import base64
import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from audited import Audited

from polyarch.kube import config, rbac
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound, TooManyRequests
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIGMAPS,
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
)
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.placement import crd
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox, opened
from polyarch.sandbox.document import describe
from polyarch.sandbox.network import loopback_of
from polyarch.sandbox.pods.containers import environment_of, records_of
from polyarch.sandbox.processes import Record
from polyarch.sandbox.state import Settings

SECONDS = 60.0
SLEEPS = ("run", "placement-controller", "--health-port=0", "--metrics-port=0")
"""A role without rights: it keeps running and is never ready."""
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


@pytest.mark.req("SB-011")
async def test_a_command_runs_to_its_end_and_its_code_and_words_are_in_the_status(
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


@pytest.mark.req("SB-011")
async def test_a_job_fails_with_the_code_and_the_last_words_of_its_command(client: Client, namespace: str) -> None:
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


@pytest.mark.req("SB-011")
async def test_a_job_of_polyarch_completes(client: Client, namespace: str) -> None:
    spec = pod("x", "--version", spec={"restartPolicy": "Never"})["spec"]
    job = {"metadata": {"name": "version"}, "spec": {"completions": 2, "parallelism": 2, "template": {"spec": spec}}}
    await client.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **job}, namespace=namespace)

    async def done() -> bool:
        status = (await client.get(JOBS, "version", namespace=namespace)).get("status", {})
        return bool(status.get("succeeded") == 2 and status.get("completionTime"))

    await until(done, "the Job is complete")


@pytest.mark.req("SB-011")
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
async def test_a_container_that_cannot_be_started_says_why(
    client: Client, namespace: str, change: Document, reason: str, said: str
) -> None:
    await client.create(PODS, pod("broken", **change), namespace=namespace)

    async def waiting() -> Document | None:
        found = container_of(await status_of(client, namespace, "broken"))["state"].get("waiting", {})
        return found if found.get("reason") == reason else None

    assert said in (await until(waiting, reason))["message"]


@pytest.mark.req("SB-011")
async def test_a_pod_waits_for_a_missing_secret_with_an_event_and_starts_when_it_comes(
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


@pytest.fixture
async def serving(sandbox: Sandbox, client: Client, namespace: str) -> AsyncIterator[Callable[..., Document]]:
    """Builds a Deployment of a role of polyarch that serves, as the operator's operands do: with a certificate from a
    Secret, a token of its ServiceAccount, named ports and probes."""
    for definition in crd.crds():
        await client.apply(CRDS, definition)
    rights = {
        "roleRef": {"apiGroup": rbac.GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    binding = {"apiVersion": f"{rbac.GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace}}
    await client.create(CLUSTER_ROLE_BINDINGS, binding | rights)
    folder = sandbox.pki.webhook_folder
    files = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in ("tls.crt", "tls.key")}
    certificates = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "certificates"}, "data": files}
    await client.create(SECRETS, certificates, namespace=namespace)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "one"}}
    await client.create(CONFIGMAPS, settings, namespace=namespace)

    def deployment(name: str = "web", *, replicas: int = 2, readiness: Document | None = None) -> Document:
        field = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        main = {
            "name": "webhook",
            "image": DEFAULT_IMAGE,
            "args": ["run", "placement-webhook", f"--namespace={namespace}", "--bind=$(POD_IP)", "--cert-dir=/certs"],
            "env": [{"name": "POD_IP", **field}],
            "ports": [{"name": "health", "containerPort": 8081}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
            "readinessProbe": readiness or {"httpGet": {"path": "/readyz", "port": "health"}},
            "volumeMounts": [
                {"name": "certificates", "mountPath": "/certs"},
                {"name": "settings", "mountPath": "/etc/settings"},
            ],
        }
        spec = {
            "terminationGracePeriodSeconds": 10,
            "containers": [main],
            "volumes": [
                {"name": "certificates", "secret": {"secretName": "certificates"}},
                {"name": "settings", "configMap": {"name": "settings"}},
            ],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        }

    yield deployment
    await client.delete(CLUSTER_ROLE_BINDINGS, namespace)


async def rolled_out(client: Client, namespace: str, name: str, replicas: int) -> None:
    async def complete() -> Document | None:
        found = await client.get(DEPLOYMENTS, name, namespace=namespace)
        status = found.get("status", {})
        counts = {status.get(each, 0) for each in ("replicas", "updatedReplicas", "availableReplicas")}
        observed = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return status if observed and counts == {replicas} else None

    await until(complete, f"{replicas} available replicas of {name}")


async def pods_of(client: Client, namespace: str) -> dict[str, Document]:
    return {each["metadata"]["name"]: each for each in (await client.list(PODS, namespace=namespace)).items}


@pytest.mark.req("SB-011")
async def test_a_deployment_is_rolled_out_scaled_and_heals(
    sandbox: Sandbox, client: Client, namespace: str, serving: Callable[..., Document]
) -> None:
    await client.create(DEPLOYMENTS, serving(), namespace=namespace)
    await rolled_out(client, namespace, "web", 2)
    found = await pods_of(client, namespace)
    addresses = {each["status"]["podIP"] for each in found.values()}
    assert len(addresses) == 2
    for address in addresses:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{loopback_of(address)}:8081/readyz") as seen,
        ):
            assert seen.status == 200

    await client.scale(DEPLOYMENTS, "web", 3, namespace=namespace)
    await rolled_out(client, namespace, "web", 3)
    assert len(processes_of(sandbox, namespace)) == 3
    await client.scale(DEPLOYMENTS, "web", 1, namespace=namespace)

    def one_left() -> bool:
        return len(processes_of(sandbox, namespace)) == 1

    await until(one_left, "one process is left")
    (left,) = (await until_pods(client, namespace, 1)).values()
    # The process that is killed is started again, in the same pod.
    (before,) = processes_of(sandbox, namespace)
    os.kill(before.pid, signal.SIGKILL)

    async def restarted() -> Document | None:
        status = await status_of(client, namespace, left["metadata"]["name"])
        again = container_of(status)
        return again if again.get("restartCount") == 1 and again.get("ready") else None

    again = await until(restarted, "the container was restarted")
    assert again["lastState"]["terminated"]["exitCode"] == 137
    (after,) = processes_of(sandbox, namespace)
    assert after.pid != before.pid

    # The second time within ten minutes it waits, as everywhere.
    os.kill(after.pid, signal.SIGKILL)

    async def waits() -> bool:
        waiting = container_of(await status_of(client, namespace, left["metadata"]["name"]))["state"].get("waiting", {})
        return waiting.get("reason") == "CrashLoopBackOff" and "back-off 10s" in waiting["message"]

    await until(waits, "CrashLoopBackOff")
    # A pod that is deleted is replaced; its folder goes with it.
    folder = sandbox.folder.root / "pods" / left["metadata"]["uid"]
    assert folder.is_dir()
    await client.delete(PODS, left["metadata"]["name"], namespace=namespace)
    await rolled_out(client, namespace, "web", 1)
    assert left["metadata"]["name"] not in await pods_of(client, namespace)
    await until(lambda: not folder.exists(), "the folder of the deleted pod is gone")


async def until_pods(client: Client, namespace: str, count: int) -> dict[str, Document]:
    async def there() -> dict[str, Document] | None:
        found = await pods_of(client, namespace)
        return found if len(found) == count else None

    found: dict[str, Document] = await until(there, f"{count} pods")
    return found


@pytest.mark.req("SB-011")
async def test_a_changed_config_map_is_in_the_pods_folder(
    sandbox: Sandbox, client: Client, namespace: str, serving: Callable[..., Document]
) -> None:
    await client.create(DEPLOYMENTS, serving(replicas=1), namespace=namespace)
    await rolled_out(client, namespace, "web", 1)
    ((_, one),) = (await pods_of(client, namespace)).items()
    volume = sandbox.folder.root / "pods" / one["metadata"]["uid"] / "volumes" / "settings"
    assert (volume / "a").read_text() == "one"
    change = MergePatch({"data": {"a": "two", "b": "new"}})
    await client.patch(CONFIGMAPS, "settings", change, namespace=namespace)
    await until(lambda: (volume / "b").exists(), "the new key")
    assert ((volume / "a").read_text(), (volume / "b").read_text()) == ("two", "new")
    await client.patch(CONFIGMAPS, "settings", MergePatch({"data": {"b": None}}), namespace=namespace)
    await until(lambda: not os.path.lexists(volume / "b"), "the key is gone")
    assert len([each for each in volume.iterdir() if each.name.startswith("..")]) == 2, "..data and what it leads to"


@pytest.mark.req("SB-011")
async def test_readiness_decides_about_endpoints(
    client: Client, namespace: str, serving: Callable[..., Document], gate: Callable[[bool], Any]
) -> None:
    port = await gate(False)
    readiness = {"tcpSocket": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1, "failureThreshold": 1}
    await client.create(DEPLOYMENTS, serving(replicas=1, readiness=readiness), namespace=namespace)
    service = {"selector": {"app": "web"}, "ports": [{"port": 443, "targetPort": 9443}]}
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service}
    await client.create(SERVICES, document, namespace=namespace)

    async def conditions() -> list[bool]:
        slices = (await client.list(ENDPOINT_SLICES, namespace=namespace)).items
        return [each["conditions"]["ready"] for one in slices for each in one.get("endpoints") or ()]

    async def runs() -> bool:
        return any(each["status"].get("phase") == "Running" for each in (await pods_of(client, namespace)).values())

    await until(runs, "the pod runs")
    for wanted in (False, True, False):
        await gate(wanted)

        async def told(wanted: bool = wanted) -> bool:
            return await conditions() == [wanted]

        await until(told, f"one endpoint whose ready is {wanted}")
    ((_, one),) = (await pods_of(client, namespace)).items()
    assert container_of(one["status"])["restartCount"] == 0, "who is not ready is not restarted"


@pytest.mark.req("SB-011")
async def test_a_disruption_budget_holds_evictions_back(
    client: Client, namespace: str, serving: Callable[..., Document]
) -> None:
    await client.create(DEPLOYMENTS, serving(), namespace=namespace)
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": budget}
    await client.create(POD_DISRUPTION_BUDGETS, document, namespace=namespace)
    await rolled_out(client, namespace, "web", 2)

    async def counted() -> bool:
        status = (await client.get(POD_DISRUPTION_BUDGETS, "web", namespace=namespace)).get("status", {})
        return bool(status.get("currentHealthy") == 2)

    await until(counted, "the budget has counted both pods")
    names = sorted(await pods_of(client, namespace))
    with pytest.raises(TooManyRequests):
        await client.evict(namespace, names[0])
    await client.patch(POD_DISRUPTION_BUDGETS, "web", MergePatch({"spec": {"minAvailable": 1}}), namespace=namespace)

    async def evicted() -> bool:
        try:
            await client.evict(namespace, names[0])
        except TooManyRequests:
            return False
        return True

    await until(evicted, "the budget allows one")
    await until_gone(client, namespace, names[0])
    await rolled_out(client, namespace, "web", 2)


async def until_gone(client: Client, namespace: str, name: str) -> None:
    async def gone() -> bool:
        try:
            await client.get(PODS, name, namespace=namespace)
        except NotFound:
            return True
        return False

    await until(gone, f"{name} is gone")


@pytest.mark.req("SB-011")
async def test_a_container_that_does_not_live_is_restarted_with_its_startup_in_mind(
    client: Client, namespace: str
) -> None:
    """Its liveness probe fails for good: it is ended and started again, and told in events."""
    probe = {"exec": {"command": ["polyarch", "lint", "/no/such/file"]}, "periodSeconds": 1, "failureThreshold": 1}
    main = {"livenessProbe": probe | {"timeoutSeconds": 10}}
    await client.create(PODS, pod("dies", *SLEEPS, **main), namespace=namespace)

    async def restarted() -> bool:
        return bool(container_of(await status_of(client, namespace, "dies")).get("restartCount", 0) >= 1)

    await until(restarted, "a restart")

    async def told() -> bool:
        reasons = {each["reason"] for each in (await client.list(EVENTS, namespace=namespace)).items}
        return {"Unhealthy", "Killing"} <= reasons

    await until(told, "events Unhealthy and Killing")


@pytest.mark.req("SB-011")
async def test_downward_api_and_variables_tell_the_pod_who_it_is(
    sandbox: Sandbox, client: Client, namespace: str
) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    env = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "FILE", "value": "/etc/pod/labels"},
    ]
    main = {"env": env, "volumeMounts": [{"name": "pod", "mountPath": "/etc/pod"}]}
    spec = {"volumes": [{"name": "pod", "downwardAPI": {"items": items}}]}
    await client.create(PODS, pod("knows", *SLEEPS, **main, spec=spec), namespace=namespace)
    (record,) = await until(lambda: processes_of(sandbox, namespace), "its process")
    variables = environment_of(record.pid)
    found = await client.get(PODS, "knows", namespace=namespace)
    assert variables["NODE"] == found["spec"]["nodeName"]
    assert 'app="knows"' in Path(variables["FILE"]).read_text().splitlines()
    await client.patch(PODS, "knows", MergePatch({"metadata": {"labels": {"new": "label"}}}), namespace=namespace)
    await until(lambda: 'new="label"' in Path(variables["FILE"]).read_text(), "the new label is in the file")
    # Its token is one of its own ServiceAccount, bound to the pod.
    async with Client(config.load(variables["KUBECONFIG"]), role="tests") as own:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = msgspec.json.decode(await own.raw("POST", path, body=msgspec.json.encode(review)))
    user = answer["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [found["metadata"]["uid"]]


@pytest.mark.req("SB-011")
async def test_a_daemon_set_runs_on_every_node_and_sees_its_nodes_files(
    sandbox: Sandbox, client: Client, namespace: str
) -> None:
    """hostPath leads into a folder that the sandbox has for the node, and nowhere else."""
    volume = {"name": "host", "hostPath": {"path": "/sys/kernel/of-the-test", "type": "DirectoryOrCreate"}}
    main = {"env": [{"name": "FILE", "value": "/host/a"}], "volumeMounts": [{"name": "host", "mountPath": "/host"}]}
    template = pod("each", *SLEEPS, **main, spec={"volumes": [volume]})
    spec = {"selector": {"matchLabels": {"app": "each"}}, "template": {k: template[k] for k in ("metadata", "spec")}}
    del template["metadata"]["name"]
    document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "each"}, "spec": spec}
    await client.create(DAEMONSETS, document, namespace=namespace)
    nodes = {node[0] for node in await sandbox.nodes()}
    records = await until(
        lambda: len(found := processes_of(sandbox, namespace)) == len(nodes) and found, "a process for each node"
    )
    host = sandbox.folder.root / "nodes"
    files = {environment_of(each.pid)["FILE"] for each in records}
    assert files == {str(host / node / "host/sys/kernel/of-the-test/a") for node in nodes}
    assert all(Path(file).parent.is_dir() for file in files)


@pytest.mark.req("SB-011")
async def test_a_host_path_that_is_not_there_is_told(client: Client, namespace: str) -> None:
    volume = {"name": "host", "hostPath": {"path": "/etc", "type": "Directory"}}
    main = {"volumeMounts": [{"name": "host", "mountPath": "/host"}]}
    await client.create(PODS, pod("blind", *SLEEPS, **main, spec={"volumes": [volume]}), namespace=namespace)

    async def told() -> bool:
        events = (await client.list(EVENTS, namespace=namespace)).items
        return any(each["reason"] == "FailedMount" and "/etc is not a Directory" in each["note"] for each in events)

    await until(told, "an event FailedMount")


@pytest.mark.req("SB-011")
async def test_what_does_not_change_is_not_written(
    sandbox: Sandbox, client: Client, namespace: str, serving: Callable[..., Document]
) -> None:
    """A pod is reported when it runs and when it is ready; an idle one costs the API server nothing."""
    audited = Audited(sandbox, "polyarch-sandbox-nodes")
    await client.create(DEPLOYMENTS, serving(replicas=1), namespace=namespace)
    await rolled_out(client, namespace, "web", 1)
    ((name, _),) = (await pods_of(client, namespace)).items()

    async def patches() -> int:
        return sum(each == f"patch pods/status {name}" for each in await audited.requests())

    assert await patches() == 2
    await asyncio.sleep(3)
    assert await patches() == 2


async def ended_after(client: Client, namespace: str, name: str) -> float:
    """Seconds from its deletion until a pod is gone."""
    start = asyncio.get_running_loop().time()
    await client.delete(PODS, name, namespace=namespace)
    await until_gone(client, namespace, name)
    return asyncio.get_running_loop().time() - start


async def until_started(client: Client, namespace: str, name: str) -> None:
    async def running() -> bool:
        return "running" in container_of(await status_of(client, namespace, name))["state"]

    await until(running, f"{name} runs")


@pytest.mark.req("SB-011")
async def test_a_process_that_does_not_end_is_killed_when_its_grace_is_over(
    sandbox: Sandbox, client: Client, namespace: str
) -> None:
    spec = {"terminationGracePeriodSeconds": 3}
    await client.create(PODS, pod("deaf", *SLEEPS, spec=spec), namespace=namespace)
    await until_started(client, namespace, "deaf")
    (record,) = processes_of(sandbox, namespace)

    async def handles_sigterm() -> bool:
        caught = next(line for line in Path(f"/proc/{record.pid}/status").read_text().splitlines() if "SigCgt" in line)
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    await until(handles_sigterm, "the process handles SIGTERM")  # until then the signal ends it, even while it stops
    os.kill(record.pid, signal.SIGSTOP)  # a stopped process hears no SIGTERM
    assert 1.5 < await ended_after(client, namespace, "deaf") < 15
    assert not processes.is_running(record)


@pytest.mark.req("SB-011")
async def test_the_hook_before_the_end_comes_first(sandbox: Sandbox, client: Client, namespace: str) -> None:
    """With `preStop.sleep` a webhook goes on to answer until nobody sends it anything any more."""
    main = {"lifecycle": {"preStop": {"sleep": {"seconds": 2}}}}
    spec = {"terminationGracePeriodSeconds": 20}
    await client.create(PODS, pod("polite", *SLEEPS, **main, spec=spec), namespace=namespace)
    await until_started(client, namespace, "polite")
    assert 2 <= await ended_after(client, namespace, "polite") < 15
    assert processes_of(sandbox, namespace) == []


# -- the life of the sandbox itself -----------------------------------------------------------------------------------


@pytest.fixture
async def own() -> AsyncIterator[Sandbox]:
    """A sandbox of the test's own, whose processes it may kill."""
    name = f"pods-{secrets.token_hex(4)}"
    async with opened(Settings(name=name, nodes={"amd64": 1}, polyarch=False, seed_images=False)) as sandbox:
        yield sandbox


def marked(sandbox: Sandbox) -> list[int]:
    """Every process of this machine that was started as a container of the sandbox, recorded or not."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and str(records_of(sandbox.folder.root)).encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
    return found


@pytest.mark.req("SB-011")
async def test_containers_outlive_the_nodes_process_once_and_never_the_sandbox(own: Sandbox) -> None:
    """Killed without warning, the nodes' process finds its containers again: none twice, none lost. What ended
    meanwhile is restarted. And `polyarch down` leaves nothing, even if nobody is there any more who knows them."""
    async with own.client() as client:
        for name in ("stays", "ends", "goes"):
            await client.create(PODS, pod(name, *SLEEPS), namespace="default")
        records = await until(lambda: len(own.containers()) == 3 and own.containers(), "three processes")
        pids = {each.pod: each.pid for each in records}
        for name in ("stays", "ends", "goes"):

            async def running(name: str = name) -> bool:
                return "running" in container_of(await status_of(client, "default", name))["state"]

            await until(running, f"{name} runs")
        await processes.stop([own.records()["nodes"]], records=own.folder.records, grace=0)
        os.kill(pids["default/ends"], signal.SIGKILL)
        await client.delete(PODS, "goes", namespace="default", grace_period_seconds=0)
        await until(lambda: len(own.containers()) == 2, "two live on, without the nodes' process")
        await Sandbox.start(own.state.settings)

        async def again() -> Document | None:
            found = container_of(await status_of(client, "default", "ends"))
            return found if found.get("restartCount") == 1 and "running" in found["state"] else None

        ended = (await until(again, "what had ended is restarted"))["lastState"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        await until(lambda: len(own.containers()) == 2 and len(marked(own)) == 2, "two processes, and no other")
        assert {each.pod: each.pid for each in own.containers()}["default/stays"] == pids["default/stays"]
        assert container_of(await status_of(client, "default", "stays"))["restartCount"] == 0

    document = await describe(own)
    (line,) = (each for each in document.processes if each.pod == "default/stays")
    assert (line.container, line.pid, line.healthy) == ("main", pids["default/stays"], True)
    assert line.memory > 10 * 2**20
    assert Path(line.log).exists()
    os.kill(own.records()["nodes"].pid, signal.SIGKILL)
    # One that was started but never recorded, as by a nodes' process that was killed in between.
    (records_of(own.folder.root) / f"{next(each.name for each in own.containers())}.json").unlink()
    await own.stop()
    assert marked(own) == []
    assert own.containers() == []
