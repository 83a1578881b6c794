"""When the operator runs the builder, and when it removes it."""

import base64
from typing import Any

import msgspec
import pytest
import structlog
from fake_api import FakeApi
from fake_informer import FakeInformer

from polyarch import names as shared
from polyarch.builds import names
from polyarch.kube.apply import ApplyResult
from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.resources import CLUSTER_ROLES, DEPLOYMENTS, ROLE_BINDINGS, ROLES, SECRETS, ObjectRef
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.operator.components.builds_objects import MACHINE_ROLE
from polyarch.operator.components.builds_reconciler import SINGLETON, BuildsReconciler
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

HOME = "polyarch-system"


def shows(cache: FakeInformer, *names: str, namespace: str = "team") -> None:
    """All that there is of a kind."""
    cache.sync()
    cache.list(*({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "1"}} for name in names))


class Sets:
    """The operands: what was applied last, and what is there."""

    is_complete = True

    def __init__(self) -> None:
        self.there: dict[ObjectRef, Any] = {}
        self.applied: list[dict[str, Any]] = []

    def serve(self, _: Any) -> None: ...
    def add_handler(self, _: Any) -> None: ...

    async def apply(self, documents: Any, *, keeps: Any) -> ApplyResult:
        self.applied = list(documents)
        for each in self.applied:
            kind = DEPLOYMENTS if each["kind"] == "Deployment" else CLUSTER_ROLES
            found = msgspec.convert(each, PartialObjectMetadata)
            self.there[ObjectRef(kind, found.metadata.key)] = found
        return ApplyResult((), (), (), ())

    def cached(self) -> list[ObjectRef]:
        return list(self.there)

    async def live(self) -> dict[ObjectRef, Any]:
        return dict(self.there)

    async def remove(self, found: Any) -> None:
        self.there.clear()


def grant(world: "BuildsComponentWorld", namespace: str, *, part: str = shared.BUILDER) -> None:
    """The Role and its binding for machine OS images, as the operator has made them."""
    metadata = {"name": MACHINE_ROLE, "namespace": namespace, "labels": {shared.OPERAND_LABEL: part}}
    for kind in (ROLES, ROLE_BINDINGS):
        world.api.put(kind, {"metadata": metadata})


def granted(world: "BuildsComponentWorld") -> list[str]:
    """Where there are such roles."""
    return sorted({namespace for _, namespace, name in world.api.objects if name == MACHINE_ROLE})


class BuildsComponentWorld:
    def __init__(self, **settings: Any) -> None:
        self.api = FakeApi()
        self.sets = Sets()
        self.caches: list[FakeInformer] = []
        self.key: FakeInformer | None = None
        """Of the Secret, while it is watched."""
        self.client: Any = self.api
        self.informers: Any = self
        self.is_terminating = False
        self.registries = ""
        self.problems: tuple[str, ...] = ()
        self.served: frozenset[Any] = frozenset()
        self.cluster: ClusterCapabilities | None = ClusterCapabilities()
        self.is_known = True
        anything: Any = self
        sets: Any = self.sets
        self.reconciler = BuildsReconciler(
            anything,
            OperatorSettings(namespace=HOME, **settings),
            namespace=anything,
            discovery=anything,
            sets=sets,
            secrets=anything,
            tainted=lambda: ("example.com/arch",),
            placed=lambda: True,
        )

    def informer(self, resource: Any, *_: Any, **selected: Any) -> FakeInformer:
        if resource == SECRETS:
            assert selected["field_selector"] == f"metadata.name={names.HMAC_SECRET}"
            self.key = FakeInformer(PartialObjectMetadata)
            return self.key
        self.caches.append(FakeInformer(PartialObjectMetadata))
        return self.caches[-1]

    def release(self, _: Any) -> None:
        self.key = None

    def bundle(self, _: str) -> bytes:
        return b"CA"

    async def look(self) -> Any:
        return await self.reconciler.reconcile(SINGLETON)

    @property
    def runs(self) -> bool:
        return any(ref.resource == DEPLOYMENTS for ref in self.sets.there)


@pytest.mark.req("BD-002")
async def test_on_it_runs_whatever_there_is() -> None:
    world = BuildsComponentWorld(builds="on")
    assert isinstance(await world.look(), NoRequeue)
    assert world.runs
    (deployment,) = (each for each in world.sets.applied if each["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--arch-taint-key=example.com/arch" in arguments
    assert world.caches == []  # nothing of builds is watched for it


@pytest.mark.req("IN-030")
async def test_with_settings_that_the_builder_would_refuse_it_stays_as_it_is() -> None:
    """It would end as it starts, again and again."""
    world = BuildsComponentWorld(builds="on")
    world.problems = ("'10.0.0/8' is not an address range",)
    assert isinstance(await world.look(), NoRequeue)
    assert not world.runs
    world.problems = ()
    await world.look()
    assert world.runs


@pytest.mark.req("BD-002")
async def test_off_what_a_former_setting_left_is_removed() -> None:
    """And then there is nothing to do."""
    world = BuildsComponentWorld(builds="on")
    await world.look()
    off = BuildsComponentWorld(builds="off")
    off.sets.there = world.sets.there
    assert isinstance(await off.look(), RequeueAfter)
    assert not off.runs
    assert isinstance(await off.look(), NoRequeue)
    assert {verb for verb, _, _ in off.api.requests} == {"list"}, "rights of former settings are looked for"


@pytest.mark.req("BD-002")
async def test_off_what_others_hold_is_told_once_with_its_finalizer() -> None:
    world = BuildsComponentWorld(builds="off")
    held = ObjectMeta(name="builder", deletion_timestamp="2026-01-01T00:00:00Z", finalizers=["example.com/held"])
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            world.sets.there = {ObjectRef(CLUSTER_ROLES, held.key): PartialObjectMetadata(metadata=held)}
            await world.look()
    ((words,),) = [each["held"] for each in logs if each["event"] == "the builder's objects cannot go"]
    assert words.startswith("ClusterRole builder is held by finalizer example.com/held of others")


@pytest.mark.req("BD-331")
@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"machine_os": "off"}, []),
        ({"machine_os": "auto"}, []),
        ({"machine_os": "on", "machine_os_namespace": "machines"}, ["machines"]),
        ({"machine_os": "on", "machine_os_namespace": "elsewhere"}, []),
    ],
    ids=["off", "auto, and no OpenShift", "on", "on, in another namespace"],
)
@pytest.mark.parametrize("builds", ["on", "off"])
async def test_rights_for_machine_os_images_stay_only_where_they_are_made(
    builds: str, settings: dict[str, Any], left: list[str]
) -> None:
    """The Role and its binding are in a namespace of others, and no apply set knows of them any more."""
    world = BuildsComponentWorld(builds=builds, **settings)
    grant(world, "machines")
    await world.look()
    assert granted(world) == left


@pytest.mark.req("BD-331")
async def test_a_role_of_somebody_else_with_that_name_stays() -> None:
    world = BuildsComponentWorld(builds="on")
    grant(world, "machines", part="something-else")
    await world.look()
    assert granted(world) == ["machines"]


@pytest.mark.req("BD-331")
async def test_an_operator_that_may_not_look_for_them_deploys_the_builder_all_the_same() -> None:
    world = BuildsComponentWorld(builds="on")
    world.api.refuse(ROLES, "list")
    world.api.refuse(ROLE_BINDINGS, "list")
    assert isinstance(await world.look(), NoRequeue)
    assert world.runs


@pytest.mark.req("BD-002")
async def test_auto_it_runs_while_there_are_builds_or_runs_of_them() -> None:
    """Images of the last runs are deleted by the builder, so it stays until they are gone."""
    world = BuildsComponentWorld(builds="auto")
    builds, runs = world.caches
    assert isinstance(await world.look(), RequeueAfter)
    assert not world.runs, "nobody knows yet"
    shows(builds)
    shows(runs)
    await world.look()
    assert not world.runs
    shows(builds, "web")
    await world.look()
    assert world.runs
    shows(builds)
    shows(runs, "web-1")
    await world.look()
    assert world.runs
    shows(runs)
    await world.look()
    assert not world.runs


@pytest.mark.req("BD-002")
@pytest.mark.parametrize(
    ("machine_os", "openshift", "expected"), [("on", False, True), ("auto", True, True), ("auto", False, False)]
)
async def test_auto_it_runs_without_builds_where_machine_os_images_are_wanted(
    machine_os: str, openshift: bool, expected: bool
) -> None:
    """A MachineOSConfig is no ImageBuild, and the operator does not watch it."""
    world = BuildsComponentWorld(builds="auto", machine_os=machine_os)
    world.cluster = ClusterCapabilities(openshift=openshift)
    for each in world.caches:
        shows(each)
    await world.look()
    assert world.runs == expected


@pytest.mark.req("BD-002")
async def test_a_builder_for_machine_os_images_is_not_removed_before_the_cluster_is_known() -> None:
    world = BuildsComponentWorld(builds="auto", machine_os="auto")
    world.cluster = None
    for each in world.caches:
        shows(each)
    world.sets.there[ObjectRef(DEPLOYMENTS, ObjectKey(HOME, names.ROLE))] = {}
    assert isinstance(await world.look(), RequeueAfter)
    assert world.runs


@pytest.mark.req("BD-002")
async def test_a_builder_that_runs_is_not_removed_before_the_builds_are_known() -> None:
    """A new operator has seen nothing yet."""
    world = BuildsComponentWorld(builds="auto")
    world.sets.there[ObjectRef(DEPLOYMENTS, ObjectKey(HOME, names.ROLE))] = {}
    assert isinstance(await world.look(), RequeueAfter)
    assert world.runs


@pytest.mark.req("BD-002")
@pytest.mark.parametrize("lacking", ["cluster", "authority"])
async def test_nothing_is_made_before_the_cluster_and_its_authority_are_known(lacking: str) -> None:
    world = BuildsComponentWorld(builds="on")
    if lacking == "cluster":
        world.cluster = None
    else:
        world.is_known = False
    assert isinstance(await world.look(), RequeueAfter)
    assert world.sets.applied == []


@pytest.mark.req("BD-002")
async def test_on_a_kubernetes_that_is_too_old_nothing_is_made() -> None:
    world = BuildsComponentWorld(builds="on")
    world.cluster = ClusterCapabilities(version=(1, 29))
    assert isinstance(await world.look(), RequeueAfter)
    assert not world.runs


@pytest.mark.req("BD-073")
async def test_the_key_of_fingerprints_is_made_once_and_never_changed() -> None:
    """32 random bytes; another key would build everything again that a secret is part of."""
    world = BuildsComponentWorld(builds="on")
    await world.look()
    made = world.api.read(SECRETS, names.HMAC_SECRET, HOME)
    assert len(base64.b64decode(made["data"]["key"])) == 32
    again = BuildsComponentWorld(builds="on")
    again.api.put(SECRETS, made)
    await again.look()
    assert again.api.read(SECRETS, names.HMAC_SECRET, HOME)["data"] == made["data"]
    other = BuildsComponentWorld(builds="on")
    await other.look()
    assert other.api.read(SECRETS, names.HMAC_SECRET, HOME)["data"] != made["data"]


@pytest.mark.req("BD-073")
async def test_a_key_that_somebody_deletes_is_made_again_at_once() -> None:
    """Without one, nothing is built any more that a secret is part of."""
    world = BuildsComponentWorld(builds="on")
    changes: list[Any] = []
    world.reconciler.on_change(changes.append)
    await world.look()
    assert world.key is not None
    shows(world.key, names.HMAC_SECRET, namespace=HOME)
    before = len(world.api.requests)
    await world.look()
    assert len(world.api.requests) == before, "it is there"
    await world.api.delete(SECRETS, names.HMAC_SECRET, namespace=HOME)
    changes.clear()
    shows(world.key)
    assert len(changes) == 1, "the deletion brings a pass"
    await world.look()
    assert len(base64.b64decode(world.api.read(SECRETS, names.HMAC_SECRET, HOME)["data"]["key"])) == 32


@pytest.mark.req("BD-073")
async def test_the_key_is_watched_while_the_builder_is_wanted() -> None:
    """The operator may read it only where builds are installed."""
    world = BuildsComponentWorld(builds="auto")
    builds, runs = world.caches
    shows(builds, "web")
    shows(runs)
    await world.look()
    assert world.key is not None
    shows(builds)
    await world.look()
    assert world.key is None


@pytest.mark.req("BD-002")
async def test_in_a_namespace_that_is_being_deleted_only_the_rest_of_the_cluster_is_cleared() -> None:
    """What is in the namespace goes with it, and nothing is made there any more."""
    world = BuildsComponentWorld(builds="on")
    world.sets.there = {
        ObjectRef(CLUSTER_ROLES, ObjectKey("", names.ROLE)): {},
        ObjectRef(DEPLOYMENTS, ObjectKey(HOME, names.ROLE)): {},
    }
    world.api.put(CLUSTER_ROLES, {"metadata": {"name": names.ROLE, "uid": "1"}})
    world.is_terminating = True
    deleted: list[str] = []

    async def deletes(resource: Any, name: str, **_: Any) -> None:
        deleted.append(f"{resource} {name}")

    world.client.delete = deletes
    assert isinstance(await world.look(), NoRequeue)
    assert deleted == [f"{CLUSTER_ROLES} {names.ROLE}"]
    assert world.sets.applied == []
