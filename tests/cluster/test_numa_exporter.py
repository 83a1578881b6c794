"""``polyarch run numa-exporter`` against a real API server, several of them side by side."""

import asyncio
import secrets
import signal
from contextlib import AsyncExitStack

import msgspec
import pytest
from audited import Audited
from exporter_process import DEFAULT_RIGHTS, Exporter, define, exporting, make_node, published
from numa_host import POLICY, SCOPE, NumaHost, available
from placement_cluster import until
from placement_process import start

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch, StrategicPatch
from polyarch.kube.rbac import PolicyRule, rule
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.operator.components.numa_exporter_objects import OWN_PODS, ExporterContext, cluster_rules


@pytest.fixture(autouse=True)
async def defined(client: Client) -> None:
    await define(client)


def attributes(topology):
    return {each["name"]: each["value"] for each in topology["attributes"]}


@pytest.mark.req("NE-010")
async def test_an_exporter_publishes_its_node_and_follows_its_kubelet(sandbox, client, namespace, tmp_path):
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=2s") as exporter:
        topology = await published(exporter, [3, 4])
        assert topology["metadata"]["name"] == exporter.node
        node = await client.get(NODES, exporter.node)
        [owner] = topology["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", exporter.node, node["metadata"]["uid"])
        assert (attributes(topology)[names.POLICY], attributes(topology)[names.SCOPE]) == (POLICY, SCOPE)
        await until(exporter.running.ready)
        host.pods({"busy": [5, 6]})
        await published(exporter, [3, 2])
        exporter.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await exporter.process.wait() == 0
        assert await exporter.shows([3, 2]), "the topology stays when its exporter ends"


@pytest.mark.req("NE-140")
async def test_the_rights_that_the_operator_gives_are_enough_and_each_is_used(sandbox, client, namespace, tmp_path):
    """One exporter patches, the other one puts; each asks for its own Node and topology alone."""
    allowed = cluster_rules(ExporterContext(platform="openshift"))
    unused = []
    for number, mode in enumerate(("--patch-mode=true", "--patch-mode=false")):
        host = NumaHost(tmp_path / f"host-{number}")
        flags = ("--sleep-interval=1s", mode)
        async with exporting(sandbox, client, namespace, tmp_path, host, *flags, allowed=allowed) as exporter:
            audited = Audited(sandbox, exporter.user, whole=True)
            await published(exporter, [3, 4])
            host.pods({"busy": [5, 6]})
            await published(exporter, [3, 2])
            await until(lambda: told(exporter, "True"), seconds=30)
            assert await audited.refused() == []
            unused.append(set(await audited.never_used((*allowed, *OWN_PODS))))
            names_asked = {each.split()[2] for each in await audited.requests() if len(each.split()) > 2}
            assert names_asked <= {exporter.node, exporter.pod}
    assert unused[0] & unused[1] == set()


@pytest.mark.req("NE-110")
async def test_an_idle_exporter_sends_nothing_however_often_it_scans(sandbox, client, namespace, tmp_path):
    host = NumaHost(tmp_path / "host")
    flags = ("--sleep-interval=1s", "--podreadiness=false")
    async with exporting(sandbox, client, namespace, tmp_path, host, *flags) as exporter:
        await published(exporter, [3, 4])
        await asyncio.sleep(3)
        audited, before = Audited(sandbox, exporter.user), await scans(exporter)
        await asyncio.sleep(10)
        assert await audited.requests() == []
        assert await scans(exporter) >= before + 5


@pytest.mark.req("NE-112")
async def test_edits_and_deletions_by_others_are_repaired_within_5_seconds(sandbox, client, namespace, tmp_path):
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=0") as exporter:
        topology = await published(exporter, [3, 4])
        metadata = {"labels": {"theirs": "stays"}, "annotations": {"theirs": "stays"}}
        zones = [{**zone, "resources": []} for zone in topology["zones"]]
        await client.patch(TOPOLOGIES, exporter.node, MergePatch({"metadata": metadata, "zones": zones}))
        repaired = await published(exporter, [3, 4], seconds=5)
        assert repaired["metadata"]["labels"] == {"theirs": "stays"}
        assert repaired["metadata"]["annotations"]["theirs"] == "stays"
        await client.delete(TOPOLOGIES, exporter.node)
        await published(exporter, [3, 4], seconds=5)


@pytest.mark.req("NE-018")
async def test_a_node_that_is_registered_again_owns_the_topology(sandbox, client, namespace, tmp_path):
    """The garbage collector may take the topology with the old Node; then it is made again."""
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=0") as exporter:
        await published(exporter, [3, 4])
        await client.delete(NODES, exporter.node)
        uid = await make_node(client, exporter.node)

        async def owned() -> bool:
            found = await exporter.topology()
            owners = found["metadata"].get("ownerReferences", []) if found else []
            return [each["uid"] for each in owners] == [uid]

        await until(owned, seconds=60)
        await asyncio.sleep(5)
        assert await owned(), "it stays"
        await published(exporter, [3, 4])


@pytest.mark.req("NE-120")
async def test_the_own_pod_says_how_scans_and_writes_go(sandbox, client, namespace, tmp_path):
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=1s") as exporter:
        await published(exporter, [3, 4])
        await until(lambda: told(exporter, "True"), seconds=30)
        host.break_kubelet()
        await until(lambda: told(exporter, "False", names.PODRESOURCES_FETCHED), seconds=30)
        conditions = await exporter.conditions()
        assert conditions[names.PODRESOURCES_FETCHED] == ("False", "ScanFailed")
        assert conditions[names.TOPOLOGY_UPDATED][0] == "True"
        assert await exporter.shows([3, 4]), "a kubelet that is away changes nothing"
        host.hand_out()
        host.pods({"busy": [1]})
        await published(exporter, [2, 4])
        await until(lambda: told(exporter, "True"), seconds=30)


@pytest.mark.req("NE-140")
async def test_without_the_right_to_patch_the_object_is_put(sandbox, client, namespace, tmp_path):
    """As with the rights that an older role grants."""
    allowed = without(TOPOLOGIES, "patch")
    host = NumaHost(tmp_path / "host")
    async with exporting(
        sandbox, client, namespace, tmp_path, host, "--sleep-interval=1s", allowed=allowed
    ) as exporter:
        await published(exporter, [3, 4])
        host.pods({"busy": [5, 6]})
        await published(exporter, [3, 2])
        await until(lambda: told(exporter, "True"), seconds=30)


@pytest.mark.req("NE-112")
async def test_without_the_right_to_watch_the_object_is_read(sandbox, client, namespace, tmp_path):
    allowed = without(TOPOLOGIES, "watch", "list")
    host = NumaHost(tmp_path / "host")
    flags = ("--sleep-interval=1s", "--resync=3s")
    async with exporting(sandbox, client, namespace, tmp_path, host, *flags, allowed=allowed) as exporter:
        await published(exporter, [3, 4], seconds=90)
        await client.delete(TOPOLOGIES, exporter.node)
        await published(exporter, [3, 4], seconds=30)


@pytest.mark.req("NE-068")
async def test_terminal_pods_do_not_count_from_the_first_scan_on(sandbox, client, namespace, tmp_path):
    allowed = (*DEFAULT_RIGHTS, rule(PODS, "list", "watch"))
    host = NumaHost(tmp_path / "host")
    node = f"numa-{secrets.token_hex(4)}"
    await make_node(client, node)
    container = {"name": "app", "image": "registry.invalid/app"}
    spec = {"containers": [container], "nodeName": node, "automountServiceAccountToken": False}
    for name in ("over", "runs"):
        metadata = {"name": name, "namespace": namespace}
        await client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=namespace
        )
    failed = StrategicPatch({"status": {"phase": "Failed"}})
    await client.patch(PODS, "over", failed, namespace=namespace, subresource="status")
    host.pods({"over": [1, 2], "runs": [5]}, namespace=namespace)
    flags = ("--sleep-interval=0", "--exclude-terminal-pods")
    async with exporting(sandbox, client, namespace, tmp_path, host, *flags, node=node, allowed=allowed) as exporter:
        await published(exporter, [3, 3])
        done = StrategicPatch({"status": {"phase": "Succeeded"}})
        await client.patch(PODS, "runs", done, namespace=namespace, subresource="status")
        await published(exporter, [3, 4])


async def test_several_exporters_write_their_own_nodes_alone(sandbox, client, namespace, tmp_path):
    async with AsyncExitStack() as stack:
        exporters = []
        for number in range(3):
            host = NumaHost(tmp_path / f"host-{number}")
            host.pods({"busy": list(range(1, number + 1))})
            process = exporting(sandbox, client, namespace, tmp_path, host, "--podreadiness=false")
            exporters.append((await stack.enter_async_context(process), [3 - number, 4]))
        for exporter, expected in exporters:
            topology = await published(exporter, expected)
            assert topology["metadata"]["name"] == exporter.node


@pytest.mark.req("NE-115")
@pytest.mark.parametrize("works", [True, False], ids=["works", "fails"])
async def test_oneshot_always_exits(sandbox, client, tmp_path, works):
    """--oneshot ends."""
    host = NumaHost(tmp_path / "host")
    if not works:
        host.break_kubelet()
    node = f"numa-{secrets.token_hex(4)}"
    flags = (f"--kubeconfig={sandbox.kubeconfig}", f"--hostname={node}", "--oneshot", *host.flags)
    process = await start(tmp_path / "oneshot.log", "run", "numa-exporter", *flags)
    async with asyncio.timeout(120):
        assert await process.wait() == (0 if works else 3), (tmp_path / "oneshot.log").read_text()
    if works:
        assert available(await client.get(TOPOLOGIES, node)) == [3, 4]
        await client.delete(TOPOLOGIES, node)


@pytest.mark.req("NE-143")
async def test_no_pod_is_named_in_the_log_above_debug(sandbox, client, namespace, tmp_path):
    """Logs do not name pods."""
    host = NumaHost(tmp_path / "host")
    host.pods({"secret-project": [5]})
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=1s", "-v=2") as exporter:
        await published(exporter, [3, 3])
        host.pods({"secret-project": [5, 99], "another-secret": [1]})
        await published(exporter, [2, 3])
        host.break_kubelet()
        await until(lambda: told(exporter, "False", names.PODRESOURCES_FETCHED), seconds=30)
        log = (tmp_path / f"{exporter.pod}.log").read_text()
        assert "scan failed" in log
        assert "secret" not in log


# -- what the tests ask ------------------------------------------------------------------------------------------------


async def told(exporter: Exporter, status: str, *types: str) -> bool:
    """Whether these conditions, or both, have this status."""
    found = await exporter.conditions()
    wanted = types or (names.PODRESOURCES_FETCHED, names.TOPOLOGY_UPDATED)
    return all(found.get(each, ("", ""))[0] == status for each in wanted)


async def scans(exporter: Exporter) -> float:
    """How many have succeeded, says ``/metrics``."""
    _, page = await exporter.running.ask("/metrics")
    lines = [line for line in page.splitlines() if line.startswith("polyarch_numa_scans_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'result="success"' in line)


def without(resource: Resource, *verbs: str) -> tuple[PolicyRule, ...]:
    """The rights of an exporter but these."""
    return tuple(
        msgspec.structs.replace(each, verbs=tuple(verb for verb in each.verbs if verb not in verbs))
        if resource.plural in each.resources
        else each
        for each in DEFAULT_RIGHTS
    )


@pytest.mark.req("NE-114", "NO-053")
async def test_a_paused_exporter_writes_nothing_and_its_pod_can_be_ready(sandbox, client, namespace, tmp_path):
    """Both readiness gates of the Pod are open, or its DaemonSet would never be rolled out."""
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=1s", "--no-publish") as exporter:
        await until(lambda: told(exporter, "True"), seconds=30)
        await until(exporter.running.ready)
        assert await exporter.topology() is None
