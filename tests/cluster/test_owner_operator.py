"""KR-050 to KR-055 on a real API server, proven by an operator that is made of nothing else (``owner_operator.py``)."""

import asyncio
import base64
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import owner_operator as operator
import pytest
import trustme
from audited import Audited

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, NotFound, Unavailable
from polyarch.kube.owners import add_finalizer, remove_finalizer
from polyarch.kube.patches import JsonPatch, MergePatch, add, replace
from polyarch.kube.rbac import granted
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from polyarch.objects import ObjectMeta
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

pytestmark = pytest.mark.req("KR-050", "KR-055")

SECONDS = 60
IMAGE = "quay.io/fleets/ship:1"


async def eventually(check: Callable[[], Awaitable[Any]], *, pause: float = 0.1) -> Any:
    """What the check returns once that is true, or no NotFound any more."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                if found := await check():
                    return found
            except NotFound:
                pass
            await asyncio.sleep(pause)


class OwnerOperatorWorld:
    """A kind of its own in a namespace of its own, with the operator's ServiceAccount and exactly its rights."""

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str, folder: Path) -> None:
        self.sandbox = sandbox
        self.client = client
        self.namespace = namespace
        self.folder = folder
        self.group = f"{namespace}.example.dev"
        self.fleets = operator.fleets(self.group)
        self.old = msgspec.structs.replace(self.fleets, version="v1alpha1")
        self.rules = operator.rights(self.group)
        self.audited = self.audit()
        self.ca = trustme.CA()

    def audit(self) -> Audited:
        """What the operator asks from now on."""
        return Audited(self.sandbox, f"system:serviceaccount:{self.namespace}:{operator.MANAGER}")

    async def install(self) -> None:
        await self.client.create(CRDS, operator.definition(self.group))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": operator.MANAGER}}
        await self.client.create(SERVICE_ACCOUNTS, account, namespace=self.namespace)
        accounts = [(self.namespace, operator.MANAGER)]
        role, binding = granted(operator.MANAGER, self.rules, accounts, namespace=self.namespace)
        await self.client.create(ROLES, role, namespace=self.namespace)
        await self.client.create(ROLE_BINDINGS, binding, namespace=self.namespace)
        issued = self.ca.issue_cert("127.0.0.1")
        self.folder.joinpath("tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
        self.folder.joinpath("tls.key").write_bytes(issued.private_key_pem.bytes())
        await eventually(lambda: self.client.list(self.fleets))

    async def kubeconfig(self) -> str:
        token = await self.client.token(self.namespace, operator.MANAGER)
        path = self.folder / "kubeconfig"
        whole = json.loads(self.sandbox.kubeconfig.read_text())
        whole["users"] = [{"name": each["name"], "user": {"token": token.token}} for each in whole["users"]]
        write_json(path, whole)
        return str(path)

    @asynccontextmanager
    async def operator(self, **settings: Any) -> AsyncIterator[Path]:
        """The operator, ready; its log. It is ended in order, and says so."""
        told = operator.Settings(self.group, self.namespace, await self.kubeconfig(), str(self.folder), **settings)
        log = self.folder / f"operator-{secrets.token_hex(2)}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, operator.__file__, msgspec.json.encode(told).decode()),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(SECONDS):
                line = await process.stdout.readline()
            assert line, log.read_text()
            await self.convert_by(json.loads(line)["admission"])
            yield log
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 0, log.read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            print(log.read_text())  # noqa: T201 - for whoever reads why a test failed

    async def convert_by(self, url: str) -> None:
        """The CRD's versions are converted by the operator from here on."""
        authority = base64.b64encode(self.ca.cert_pem.bytes()).decode()
        webhook = {
            "clientConfig": {"url": url + operator.CONVERT, "caBundle": authority},
            "conversionReviewVersions": ["v1"],
        }
        change = MergePatch({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}})
        await self.client.patch(CRDS, str(self.fleets), change)

    async def create(self, name: str = "f", *, resource: Resource | None = None, **spec: Any) -> dict[str, Any]:
        resource = resource or self.fleets
        document = {"apiVersion": resource.api_version, "kind": "Fleet", "metadata": {"name": name}, "spec": spec}
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await self.client.create(resource, document, namespace=self.namespace, type=dict)
                except Unavailable as error:
                    if error.status != 503:
                        raise
                    await asyncio.sleep(0.1)  # the API server makes a new handler for a definition that has changed

    async def get(self, resource: Resource, name: str = "f") -> dict[str, Any]:
        return await self.client.get(resource, name, namespace=self.namespace)

    async def patch(self, resource: Resource, name: str, patch: Any, **options: Any) -> None:
        await self.client.patch(resource, name, patch, namespace=self.namespace, **options)

    async def delete(self, resource: Resource, name: str = "f") -> None:
        await self.client.delete(resource, name, namespace=self.namespace)

    async def is_gone(self, resource: Resource, name: str = "f") -> bool:
        try:
            await self.get(resource, name)
        except NotFound:
            return True
        return False

    async def condition(self, kind: str, status: str, name: str = "f") -> dict[str, Any]:
        """The condition, once it has this status for the generation that the fleet has now."""

        async def there() -> dict[str, Any] | None:
            fleet = await self.get(self.fleets, name)
            for each in fleet.get("status", {}).get("conditions", ()):
                current = each.get("observedGeneration") == fleet["metadata"]["generation"]
                if (each["type"], each["status"]) == (kind, status) and current:
                    return each
            return None

        return await eventually(there)

    async def settled(self) -> None:
        """Nothing is asked any more."""

        async def quiet() -> bool:
            before = await self.audited.requests()
            return before == await self.audited.requests()

        await eventually(quiet)


@pytest.fixture
async def world(sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[OwnerOperatorWorld]:
    await sandbox.registry.seed({IMAGE: ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]})
    world = OwnerOperatorWorld(sandbox, client, namespace, tmp_path)
    await world.install()
    try:
        yield world
    finally:
        await client.patch(CRDS, str(world.fleets), MergePatch({"spec": {"conversion": None}}))
        for fleet in (await client.list(world.fleets)).items:
            where = ObjectMeta(
                name=fleet["metadata"]["name"],
                namespace=fleet["metadata"]["namespace"],
                uid=fleet["metadata"]["uid"],
                finalizers=fleet["metadata"].get("finalizers"),
            )
            await remove_finalizer(client, world.fleets, where, operator.FINALIZER)
        await client.delete(CRDS, str(world.fleets))


@pytest.mark.req("KR-051")
async def test_a_pass_that_changes_nothing_sends_nothing(world: OwnerOperatorWorld) -> None:
    """Not the next pass either, nor the first one of the next leader; annotations of others are left as they are."""
    async with world.operator():
        await world.create(replicas=2, image=IMAGE, settings="a")
        await world.condition("Available", "True")
        deployment = await world.get(DEPLOYMENTS)
        assert [each["name"] for each in deployment["metadata"]["ownerReferences"]] == ["f"]
        theirs = MergePatch({"metadata": {"annotations": {"note": "theirs"}}})
        await world.patch(DEPLOYMENTS, "f", theirs, field_manager="kubectl-edit")
        await world.settled()
        quiet = world.audit()
        for number in range(5):
            await world.patch(world.fleets, "f", MergePatch({"metadata": {"annotations": {"n": str(number)}}}))
        assert await quiet.requests() == []
        assert (await world.get(DEPLOYMENTS))["metadata"]["annotations"]["note"] == "theirs"
    quiet = world.audit()
    async with world.operator():
        await asyncio.sleep(3)
        assert await quiet.requests() == []


@pytest.mark.req("KR-051")
async def test_a_value_that_is_stored_in_another_form_is_not_sent_for_ever(world: OwnerOperatorWorld) -> None:
    async with world.operator():
        await world.create(replicas=1, image=IMAGE, cpu="1000m")
        await world.condition("Available", "True")
        container = (await world.get(DEPLOYMENTS))["spec"]["template"]["spec"]["containers"][0]
        assert container["resources"]["requests"] == {"cpu": "1"}
        await world.settled()
        quiet = world.audit()
        for number in range(3):
            await world.patch(world.fleets, "f", MergePatch({"metadata": {"annotations": {"n": str(number)}}}))
        assert await quiet.requests() == []


@pytest.mark.req("PL-501")
async def test_what_others_change_is_put_right_and_a_lasting_quarrel_is_told(world: OwnerOperatorWorld) -> None:
    async with world.operator():
        await world.create(replicas=2, image=IMAGE)
        await world.condition("Available", "True")

        async def meddled() -> bool:
            await world.patch(DEPLOYMENTS, "f", MergePatch({"spec": {"replicas": 7}}), field_manager="scaler")
            deadline = asyncio.get_running_loop().time() + 5
            while asyncio.get_running_loop().time() < deadline:
                if (await world.get(DEPLOYMENTS))["spec"]["replicas"] == 2:
                    return True
                await asyncio.sleep(0.05)
            return False

        for _ in range(5):
            assert await meddled(), "put right"
        assert not await meddled(), "not fought over"
        degraded = await world.condition("Degraded", "True")
        assert degraded["reason"] == "Conflict"
        assert degraded["message"] == f"deployments.apps {world.namespace}/f: .spec.replicas belongs to scaler"


@pytest.mark.req("KR-051")
async def test_without_force_the_conflict_names_the_other_manager(world: OwnerOperatorWorld) -> None:
    async with world.operator(force=False):
        await world.create(replicas=2, image=IMAGE)
        await world.condition("Available", "True")
        await world.patch(DEPLOYMENTS, "f", MergePatch({"spec": {"replicas": 1}}), field_manager="kubectl-scale")
        degraded = await world.condition("Degraded", "True")
        assert degraded["message"] == f"deployments.apps {world.namespace}/f: .spec.replicas belongs to kubectl-scale"
        assert (await world.get(DEPLOYMENTS))["spec"]["replicas"] == 1
        await world.patch(world.fleets, "f", MergePatch({"spec": {"replicas": 1}}))
        await world.condition("Degraded", "False")


@pytest.mark.req("KR-052")
async def test_conditions_keep_their_time_until_the_status_changes(world: OwnerOperatorWorld) -> None:
    async with world.operator():
        await world.create(replicas=1, image=IMAGE)
        before = await world.condition("Available", "True")
        foreign = {"type": "Audited", "status": "True", "reason": "X", "message": ""}
        foreign["lastTransitionTime"] = "2025-01-01T00:00:00Z"
        await world.patch(world.fleets, "f", JsonPatch((add("/status/conditions/-", foreign),)), subresource="status")
        await asyncio.sleep(1.1)
        await world.patch(world.fleets, "f", MergePatch({"spec": {"replicas": 2}}))
        after = await world.condition("Available", "True")
        assert after["lastTransitionTime"] == before["lastTransitionTime"]
        assert after["observedGeneration"] == before["observedGeneration"] + 1
        kinds = [each["type"] for each in (await world.get(world.fleets))["status"]["conditions"]]
        assert sorted(kinds) == ["Audited", "Available", "Degraded"], "another's condition stays"
        await world.patch(world.fleets, "f", MergePatch({"spec": {"replicas": 0}}))
        gone = await world.condition("Available", "False")
        assert gone["lastTransitionTime"] > after["lastTransitionTime"]
        await world.patch(world.fleets, "f", MergePatch({"spec": {"replicas": -1}}))
        assert "set it to 0 or more" in (await world.condition("Degraded", "True"))["message"]


@pytest.mark.req("KR-053")
async def test_versions_are_converted_by_the_api_servers_own_webhook(world: OwnerOperatorWorld) -> None:
    document = {"apiVersion": world.old.api_version, "kind": "Fleet", "metadata": {"name": "odd"}}
    odd = {**document, "spec": {"ships": "many"}}

    async def is_asked() -> bool:
        """Whether the API server has taken over the webhook: until then it drops the fields of the other version."""
        try:
            await world.client.create(world.old, odd, namespace=world.namespace, dry_run=True)
        except ApiError as error:
            return "is no number" in str(error)
        return False

    async with world.operator():
        await eventually(is_asked)
        await world.create("old", resource=world.old, ships="3", image=IMAGE, mood="good")
        stored = await world.get(world.fleets, "old")
        assert stored["spec"] == {"replicas": 3, "image": IMAGE}
        assert stored["metadata"]["annotations"] == {operator.MOOD: "good"}
        await world.create("new", replicas=1, image=IMAGE)
        listed = (await world.client.list(world.old, namespace=world.namespace)).items
        assert [(each["metadata"]["name"], each["spec"]) for each in listed] == [
            ("new", {"ships": "1", "image": IMAGE}),
            ("old", {"ships": "3", "image": IMAGE, "mood": "good"}),
        ]
        await world.patch(world.old, "old", JsonPatch((replace("/spec/ships", "4"),)))
        stored = await world.get(world.fleets, "old")
        assert stored["spec"]["replicas"] == 4
        assert stored["metadata"]["annotations"] == {operator.MOOD: "good"}, "there and back"
        with pytest.raises(ApiError, match=f"Fleet {world.namespace}/odd: spec.ships: 'many' is no number"):
            await world.create("odd", resource=world.old, ships="many")


@pytest.mark.req("KR-051", "KR-052", "KR-054", "PL-522", "PL-550")
async def test_the_operator_does_all_that_it_does_with_exactly_its_rules(world: OwnerOperatorWorld) -> None:
    """From its first fleet to the end of its last, nothing is refused and no right is left over.

    On the way: what is no longer desired goes after a live read, a deletion takes everything with it.
    """
    async with world.operator():
        await world.create(replicas=1, image=IMAGE, settings="a")
        await eventually(lambda: _with_finalizer(world))
        await world.condition("Available", "True")
        assert await world.get(CONFIGMAPS)

        before = world.audit()
        await world.patch(world.fleets, "f", MergePatch({"spec": {"settings": None, "replicas": 0}}))
        await eventually(lambda: world.is_gone(CONFIGMAPS))
        await eventually(lambda: world.is_gone(DEPLOYMENTS))
        await world.condition("Available", "False")
        requests = [each for each in await before.requests() if "fleets" not in each and "events" not in each]
        assert requests == [
            "get deployments f",
            "delete deployments f",
            "get configmaps f",
            "delete configmaps f",
        ]

        await world.patch(world.fleets, "f", MergePatch({"spec": {"settings": "b", "replicas": 1}}))
        await world.condition("Available", "True")
        await world.delete(world.fleets)
        await eventually(lambda: world.is_gone(world.fleets))
        assert await world.is_gone(DEPLOYMENTS)
        assert await world.is_gone(CONFIGMAPS)

        await world.create("brief", replicas=1, image=IMAGE, settings="a")
        await world.delete(world.fleets, "brief")
        await eventually(lambda: world.is_gone(world.fleets, "brief"))
        # Made and deleted within a second. A DELETE that read the fleet before our finalizer was added removes
        # it all the same (the API server tests no resourceVersion then); the owner references see to the rest.
        await eventually(lambda: world.is_gone(DEPLOYMENTS, "brief"))
        await eventually(lambda: world.is_gone(CONFIGMAPS, "brief"))
        await _race_for_a_finalizer(world)
    told = {each["reason"] for each in (await world.client.list(EVENTS, namespace=world.namespace)).items}
    assert {"Changed", "Gone"} <= told
    assert await world.audited.refused() == []
    assert await world.audited.not_allowed(world.rules) == []
    assert await world.audited.never_used(world.rules) == []


async def _with_finalizer(world: OwnerOperatorWorld) -> dict[str, Any] | None:
    fleet = await world.get(world.fleets)
    return fleet if operator.FINALIZER in fleet["metadata"].get("finalizers", ()) else None


async def _race_for_a_finalizer(world: OwnerOperatorWorld) -> None:
    """Somebody writes the list between our look and our patch; the operator's rights are enough for that, too."""
    await world.create("raced", replicas=0)
    seen = msgspec.convert((await world.get(world.fleets, "raced"))["metadata"], ObjectMeta)
    await world.patch(world.fleets, "raced", MergePatch({"metadata": {"finalizers": ["example.dev/other"]}}))
    async with Client(config.load(await world.kubeconfig()), role="tests") as client:
        assert await add_finalizer(client, world.fleets, seen, "example.dev/third")
    fleet = await world.get(world.fleets, "raced")
    assert {"example.dev/other", "example.dev/third"} <= set(fleet["metadata"]["finalizers"])
    await world.patch(world.fleets, "raced", MergePatch({"metadata": {"finalizers": None}}))
    await world.delete(world.fleets, "raced")
    await eventually(lambda: world.is_gone(world.fleets, "raced"))
