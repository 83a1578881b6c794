"""The client, the watch and the informers against a real API server, directly and through the fault proxy."""

import asyncio
import secrets
import stat
import sys
from collections.abc import Iterable
from contextlib import asynccontextmanager

import msgspec
import pytest
from fault_proxy import CUT, Cut, Fault, FaultProxy, Lines, Reset, Seen, gone_event, status

from polyarch.clock import SystemClock
from polyarch.kube import config, errors
from polyarch.kube.client import Client
from polyarch.kube.credentials import TlsContexts
from polyarch.kube.informer import Informer, InformerFactory
from polyarch.kube.patches import ApplyPatch, JsonPatch, MergePatch, StrategicPatch, add, remove
from polyarch.kube.patches import test as expect
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from polyarch.kube.settings import Configuration, User
from polyarch.objects import Node, ObjectKey, ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("KR-014", "KR-015")

SECONDS = 60
"""How long anything may take before a test fails; nothing is asserted about how quick it was."""


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


def configmap(name, text="", **labels):
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


def pod(name, **spec):
    containers = [{"name": "main", "image": "example.test/none:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "schedulerName": "nobody", **spec},
    }


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(*informers):
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        async with asyncio.timeout(SECONDS):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- verbs --------------------------------------------------------------------------------------------------------


@pytest.mark.req("KR-003", "KR-004")
async def test_the_life_of_an_object(client, namespace):
    """Create, get, all four patches, delete with preconditions."""
    made = await client.create(CONFIGMAPS, configmap("c", "one"), namespace=namespace)
    assert isinstance(made, PartialObjectMetadata)
    assert made.metadata.name == "c"
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIGMAPS, configmap("c"), namespace=namespace)

    found = await client.get(CONFIGMAPS, "c", namespace=namespace, type=ConfigMap)
    assert found.data == {"text": "one"}
    assert found.metadata.uid == made.metadata.uid

    patches = [
        JsonPatch((expect("/metadata/uid", found.metadata.uid), add("/data/json", "1"))),
        MergePatch({"data": {"merge": "2"}}),
        StrategicPatch({"data": {"strategic": "3"}}),
        ApplyPatch({"apiVersion": "v1", "kind": "ConfigMap", "data": {"apply": "4"}}),
    ]
    for patch in patches:
        await client.patch(CONFIGMAPS, "c", patch, namespace=namespace)
    whole = await client.get(CONFIGMAPS, "c", namespace=namespace)
    assert whole["data"] == {"text": "one", "json": "1", "merge": "2", "strategic": "3", "apply": "4"}
    assert {entry["manager"] for entry in whole["metadata"]["managedFields"]} == {"polyarch"}

    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await client.delete(CONFIGMAPS, "c", namespace=namespace, uid="another")
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIGMAPS, "c", namespace=namespace, resource_version=made.metadata.resource_version)
    await client.delete(CONFIGMAPS, "c", namespace=namespace, uid=made.metadata.uid)
    with pytest.raises(errors.NotFound, match="get configmaps c"):
        await client.get(CONFIGMAPS, "c", namespace=namespace)


@pytest.mark.req("KR-002", "PL-005")
async def test_refusals_have_their_types_and_causes(client, namespace):
    """A failed `test` is Invalid; an invalid object names its fields."""
    await client.create(CONFIGMAPS, configmap("c"), namespace=namespace)
    with pytest.raises(errors.Invalid):
        await client.patch(CONFIGMAPS, "c", JsonPatch((expect("/metadata/uid", "x"),)), namespace=namespace)
    with pytest.raises(errors.Invalid) as caught:
        await client.create(PODS, pod("p", restartPolicy="Sometimes"), namespace=namespace)
    assert [cause.field for cause in caught.value.causes] == ["spec.restartPolicy"]
    with pytest.raises(errors.NotFound):
        await client.list(Resource("example.com", "v1", "things", "Thing"))
    with pytest.raises(errors.BadRequest):
        await client.create(CONFIGMAPS, {"kind": "ConfigMap", "data": 5}, namespace=namespace)


@pytest.mark.req("KR-003")
async def test_apply_makes_takes_over_and_meets_conflicts(client, namespace):
    await client.apply(CONFIGMAPS, configmap("c", "ours"), namespace=namespace)
    theirs = configmap("c", "theirs") | {"data": {"text": "theirs", "more": "theirs"}}
    await client.raw(
        "PATCH",
        CONFIGMAPS.path(namespace, "c"),
        query="fieldManager=other&force=true",
        body=msgspec.json.encode(theirs),
        content_type="application/apply-patch+yaml",
    )
    with pytest.raises(errors.Conflict, match="other") as caught:
        await client.apply(CONFIGMAPS, configmap("c", "ours again"), namespace=namespace, force=False)
    assert ".data.text" in {cause.field for cause in caught.value.causes}
    await client.apply(CONFIGMAPS, configmap("c", "ours again"), namespace=namespace)
    found = await client.get(CONFIGMAPS, "c", namespace=namespace)
    assert found["data"] == {"text": "ours again", "more": "theirs"}


@pytest.mark.req("KR-003")
async def test_a_dry_run_changes_nothing(client, namespace):
    await client.create(CONFIGMAPS, configmap("c"), namespace=namespace, dry_run=True)
    await client.apply(CONFIGMAPS, configmap("d"), namespace=namespace, dry_run=True)
    names = [item.metadata.name for item in (await client.list(CONFIGMAPS, namespace=namespace, type=ConfigMap)).items]
    assert "c" not in names
    assert "d" not in names
    await client.create(CONFIGMAPS, configmap("e", "1"), namespace=namespace)
    await client.patch(CONFIGMAPS, "e", MergePatch({"data": {"text": "2"}}), namespace=namespace, dry_run=True)
    await client.delete(CONFIGMAPS, "e", namespace=namespace, dry_run=True)
    assert (await client.get(CONFIGMAPS, "e", namespace=namespace))["data"] == {"text": "1"}


@pytest.mark.req("KR-003")
async def test_a_paged_list_with_selectors(client, namespace):
    for number in range(5):
        await client.create(CONFIGMAPS, configmap(f"c{number}", even=str(number % 2 == 0)), namespace=namespace)
    found = await client.list(
        CONFIGMAPS, namespace=namespace, label_selector="even", limit=2, type=PartialObjectMetadata
    )
    assert [item.metadata.name for item in found.items] == [f"c{number}" for number in range(5)]
    assert found.resource_version.isdecimal()
    even = await client.list(CONFIGMAPS, namespace=namespace, label_selector="even=True,even!=x")
    assert [item["metadata"]["name"] for item in even.items] == ["c0", "c2", "c4"]
    one = await client.list(CONFIGMAPS, namespace=namespace, field_selector="metadata.name=c3")
    assert len(one.items) == 1


@pytest.mark.req("KR-003")
async def test_only_metadata_comes_back_of_a_write_nobody_reads(client, namespace):
    """In the server's own form, whatever the kind."""
    await client.create(CONFIGMAPS, configmap("c", "x" * 100_000), namespace=namespace)
    done = await client.patch(CONFIGMAPS, "c", MergePatch({"data": {"y": ""}}), namespace=namespace)
    assert done.kind == "PartialObjectMetadata"
    assert done.metadata.resource_version


@pytest.mark.req("KR-003")
async def test_a_lease_is_replaced_only_by_who_knows_it(client, namespace):
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    made = await client.create(LEASES, document, namespace=namespace)
    mine = document | {
        "metadata": {"name": "l", "namespace": namespace, "resourceVersion": made.metadata.resource_version},
        "spec": {"holderIdentity": "me"},
    }
    await client.replace(LEASES, mine, namespace=namespace)
    with pytest.raises(errors.Conflict):
        await client.replace(LEASES, mine, namespace=namespace)


@pytest.mark.req("KR-003")
async def test_status_scale_binding_and_eviction(client, sandbox, namespace):
    made = await client.create(PODS, pod("p"), namespace=namespace)
    node = next(iter((await client.list(Resource("", "v1", "nodes", "Node", namespaced=False))).items))
    name = node["metadata"]["name"]
    with pytest.raises(errors.Conflict):
        await client.bind(namespace, "p", name, "another-uid")
    await client.bind(namespace, "p", name, made.metadata.uid)
    assert (await client.get(PODS, "p", namespace=namespace))["spec"]["nodeName"] == name

    await client.create(PODS, pod("q"), namespace=namespace)
    condition = {"type": "example.test/seen", "status": "True"}
    await client.patch(
        PODS, "q", MergePatch({"status": {"conditions": [condition]}}), namespace=namespace, subresource="status"
    )
    conditions = (await client.get(PODS, "q", namespace=namespace))["status"]["conditions"]
    assert [entry["type"] for entry in conditions] == ["example.test/seen"]
    await client.evict(namespace, "q", grace_period_seconds=0, dry_run=True)
    await client.evict(namespace, "q", grace_period_seconds=0)
    with pytest.raises(errors.NotFound):
        await client.evict(namespace, "q")

    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, namespace=namespace)
    await client.scale(DEPLOYMENTS, "d", 1, namespace=namespace)
    scale = await client.get(DEPLOYMENTS, "d", namespace=namespace, subresource="scale")
    assert scale["spec"]["replicas"] == 1


@pytest.mark.req("KR-003")
async def test_the_log_of_a_pod_that_has_not_begun_is_empty(client, namespace):
    await client.create(PODS, pod("p"), namespace=namespace)
    assert await client.log(namespace, "p", container="main", tail_lines=5) == ""
    with pytest.raises(errors.NotFound, match="get pods/log q"):
        await client.log(namespace, "q")
    with pytest.raises(errors.BadRequest, match="container another is not valid"):
        await client.log(namespace, "p", container="another")


async def test_discovery_finds_what_is_served(client):
    found = await client.discover("apps")
    assert DEPLOYMENTS in found
    assert PODS in await client.discover("")
    assert CRDS in await client.discover("apiextensions.k8s.io")
    assert await client.discover("nobody.example.com") == ()


# -- credentials --------------------------------------------------------------------------------------------------


def without_rights(sandbox_configuration: Configuration, user: User) -> Configuration:
    """The same server, as somebody else: no certificate of the administrator's."""
    tls = msgspec.structs.replace(sandbox_configuration.tls, certificate=None, key=None)
    return msgspec.structs.replace(sandbox_configuration, tls=tls, user=user)


async def robot(client, namespace) -> str:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, namespace=namespace)
    return (await client.token(namespace, "robot")).token


@pytest.mark.req("KR-001", "KR-002")
async def test_a_service_accounts_token_from_a_file(client, namespace, tmp_path):
    """Refused while it is nonsense, read again, then known but not allowed."""
    path = tmp_path / "token"
    path.write_text("nonsense")
    async with Client(without_rights(client.configuration, User(token_file=str(path)))) as other:
        with pytest.raises(errors.Unauthorized):
            await other.list(PODS, namespace=namespace)
        path.write_text(await robot(client, namespace))
        with pytest.raises(errors.Forbidden, match=f'"system:serviceaccount:{namespace}:robot" cannot list'):
            await other.list(PODS, namespace=namespace)


@pytest.mark.req("KR-001")
async def test_a_credential_plugin_in_a_kubeconfig(client, namespace, tmp_path):
    """A whole kubeconfig, with a program that prints the token."""
    token = await robot(client, namespace)
    program = tmp_path / "login"
    program.write_text(f"""#!{sys.executable}
import json
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                   "status": {{"token": {token!r}}}}}))
""")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "ca.crt").write_bytes(client.configuration.tls.ca.read())
    cluster = {"server": client.configuration.server, "certificate-authority": "ca.crt"}
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    }
    (tmp_path / "config").write_bytes(msgspec.json.encode(document))
    found = config.load(str(tmp_path / "config"), environ={})
    async with Client(found) as other:
        review = await other.create(
            Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False),
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            type=dict,
        )
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{found.namespace}:robot"


# -- watching -----------------------------------------------------------------------------------------------------


def informer_of(client, namespace) -> Informer[ConfigMap]:
    return Informer(client, CONFIGMAPS, ConfigMap, selection=ListOptions(namespace, "mine=yes"))


async def truth(client, namespace) -> dict[ObjectKey, ConfigMap]:
    found = await client.list(CONFIGMAPS, namespace=namespace, label_selector="mine=yes", type=ConfigMap)
    return {item.metadata.key: item for item in found.items}


async def same(informer, client, namespace) -> bool:
    """The store equals the server, after a moment at rest."""
    expected = await truth(client, namespace)
    async with asyncio.timeout(SECONDS):
        while dict(informer.store.items()) != expected:
            await asyncio.sleep(0.02)
    return True


async def stir(client, namespace, rounds: int, tag: str) -> None:
    """Objects come, change and go."""
    for number in range(rounds):
        name = f"{tag}-{number}"
        await client.create(CONFIGMAPS, configmap(name, "1", mine="yes"), namespace=namespace)
        if number % 3 != 0:
            await client.patch(CONFIGMAPS, name, MergePatch({"data": {"text": "2"}}), namespace=namespace)
        if number % 3 == 1:
            await client.delete(CONFIGMAPS, name, namespace=namespace)
        if number % 3 == 2:
            change = JsonPatch((remove("/metadata/labels/mine"),))
            await client.patch(CONFIGMAPS, f"{tag}-{number}", change, namespace=namespace)


@pytest.mark.req("KR-011")
async def test_a_streaming_list_of_a_real_server(client, namespace):
    """One request from nothing to watching; objects that leave the selection are deleted."""
    await stir(client, namespace, 4, "before")
    informer = informer_of(client, namespace)
    async with running(informer):
        await informer.synced()
        await stir(client, namespace, 6, "after")
        assert await same(informer, client, namespace)
        assert len(informer.store) == 4
    assert informer.problem is None


@pytest.mark.req("KR-013")
async def test_what_strings_may_hold_arrives_unharmed(client, namespace):
    """U+0085 and its like unescaped, and a line of almost a megabyte."""
    text = "one\u0085two\u2028three\r\nfour" + "ä" * 450_000
    informer = informer_of(client, namespace)
    async with running(informer):
        await informer.synced()
        await client.create(CONFIGMAPS, configmap("odd", text, mine="yes"), namespace=namespace)
        await until(lambda: len(informer.store) == 1)
        (kept,) = informer.store.values()
        assert kept.data == {"text": text}
    listed = await client.get(CONFIGMAPS, "odd", namespace=namespace, type=ConfigMap)
    assert listed.data["text"] == text


@pytest.mark.req("KR-012")
async def test_missing_rights_are_named_and_taken_up_once_granted(client, namespace):
    """Readiness is off meanwhile, nothing ends, nothing has to be restarted."""
    token = await robot(client, namespace)
    async with Client(without_rights(client.configuration, User(token=token))) as other:
        informers = InformerFactory(other, chance=lambda: 0.1, freeze=False)
        informer = informers.informer(CONFIGMAPS, PartialObjectMetadata, namespace=namespace)
        async with running(informers):
            await until(lambda: informer.problem is not None)
            assert "not allowed to" in informers.problems[0]
            assert f"configmaps in namespace {namespace}" in informers.problems[0]
            rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
            await client.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule]}, namespace=namespace)
            binding = {
                "metadata": {"name": "r"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
            }
            await client.create(ROLE_BINDINGS, binding, namespace=namespace)
            await informers.synced()
            await until(lambda: not informers.problems)
            assert ObjectKey(namespace, "kube-root-ca.crt") in informer.store


# -- through the fault proxy ----------------------------------------------------------------------------------------


@pytest.fixture
async def proxy(client):
    found = client.configuration
    context = TlsContexts(found.tls, SystemClock()).current()
    async with FaultProxy(found.server, upstream_ssl=context) as proxy:
        yield proxy


@pytest.fixture
async def faulty(client, proxy):
    """A client that reaches the server through the proxy only."""
    async with Client(Configuration(server=proxy.url, user=client.configuration.user), chance=lambda: 0.2) as faulty:
        yield faulty


def watches(seen: Seen) -> bool:
    return seen.watch


def streaming(seen: Seen) -> bool:
    return "sendInitialEvents" in seen.query


def pages(seen: Seen) -> bool:
    return "limit=" in seen.query


@pytest.mark.req("KR-011")
async def test_a_server_that_refuses_streaming_lists_is_read_in_pages(client, faulty, proxy, namespace):
    """With a page that expires on the way."""
    await stir(client, namespace, 3, "before")
    proxy.inject(streaming, status(422, "Invalid", "sendInitialEvents is forbidden"))
    proxy.inject(lambda seen: pages(seen) and "continue=" in seen.query, status(410, "Expired"), times=1)
    informer = informer_of(faulty, namespace)
    async with running(informer):
        await informer.synced()
        await stir(client, namespace, 3, "after")
        assert await same(informer, client, namespace)
    assert proxy.count(streaming) == 1
    assert proxy.count(pages) >= 1


def twice(line: bytes) -> Iterable[bytes]:
    return [line, line]


def cut_in_the_middle(line: bytes) -> Iterable[bytes | object]:
    return [CUT]


def too_old(line: bytes) -> Iterable[bytes | object]:
    return [gone_event()]


def nonsense(line: bytes) -> Iterable[bytes | object]:
    return [b"<html>gateway</html>\n"]


@pytest.mark.req("KR-012", "KR-040", "KR-041")
@pytest.mark.parametrize(
    ("action", "times"),
    [
        (Lines(twice), None),
        (Lines(cut_in_the_middle), 4),
        (Lines(too_old), 2),
        (Lines(nonsense), 2),
        (Reset(), 4),
        (Cut(300), 4),
        (status(410, "Expired"), 2),
        (status(429, "TooManyRequests", retry_after=1), 2),
        (status(503, "ServiceUnavailable"), 3),
        (status(500, "InternalError"), 3),
    ],
    ids=["twice", "cut", "gone-event", "nonsense", "reset", "eof", "410", "429", "503", "500"],
)
async def test_after_any_fault_the_store_equals_the_server(client, faulty, proxy, namespace, action, times):
    """Faults hit the first list as well as watches that are torn later."""
    await stir(client, namespace, 3, "before")
    changes = []
    informer = informer_of(faulty, namespace)
    informer.add_handler(changes.append)
    fault: Fault = proxy.inject(watches, action, times=times)
    async with running(informer):
        await stir(client, namespace, 3, "during")
        await informer.synced()
        proxy.tear()
        await stir(client, namespace, 6, "after")
        assert await same(informer, client, namespace)
    assert fault.hits > 0
    mirror = {}
    for change in changes:
        if change.kind == "delete":
            del mirror[change.key]
        else:
            mirror[change.key] = change.new
    assert mirror == dict(informer.store.items()), "handlers were told exactly what the store went through"


@pytest.mark.req("KR-012", "KR-041")
async def test_a_server_that_goes_away_and_comes_back(client, faulty, proxy, namespace):
    """What happened meanwhile is caught up, deletions too; the cache is readable throughout."""
    await stir(client, namespace, 3, "before")
    informer = informer_of(faulty, namespace)
    async with running(informer):
        await informer.synced()
        before = len(informer.store)
        async with proxy.refusing():
            await until(lambda: informer.last_error is not None)
            for key in await truth(client, namespace):
                await client.delete(CONFIGMAPS, key.name, namespace=namespace)
            await stir(client, namespace, 3, "meanwhile")
            assert len(informer.store) == before
            assert informer.problem is None
        assert await same(informer, client, namespace)


@pytest.mark.req("KR-002")
async def test_writes_arrive_once_through_a_bad_network(client, faulty, proxy, namespace):
    """Answers torn after the server acted, 429 and 5xx; a create is not repeated, a patch is."""
    name = f"c-{secrets.token_hex(2)}"
    proxy.inject(lambda seen: seen.method == "POST", Reset(after=True), times=1)
    with pytest.raises(errors.ConnectionFailed):
        await faulty.create(CONFIGMAPS, configmap(name), namespace=namespace)
    with pytest.raises(errors.AlreadyExists):
        await faulty.create(CONFIGMAPS, configmap(name), namespace=namespace)
    for action in (Reset(after=True), status(429, "TooManyRequests", retry_after=1), status(503, "ServiceUnavailable")):
        proxy.inject(lambda seen: seen.method == "PATCH", action, times=1)
        await faulty.patch(CONFIGMAPS, name, MergePatch({"data": {"text": str(action)}}), namespace=namespace)
        assert (await client.get(CONFIGMAPS, name, namespace=namespace))["data"]["text"] == str(action)


async def test_a_column_of_what_kubectl_prints_has_the_runtime_of_each_node(client):
    """Placement reads it instead of the nodes, which are a hundred times as long."""
    nodes = await client.list(NODES, type=Node)
    found = await client.column(NODES, "Container-Runtime")
    assert found == {each.metadata.name: each.status.node_info.container_runtime_version for each in nodes.items}
    assert all(found.values())
    assert await client.column(NODES, "No such column") == {}
