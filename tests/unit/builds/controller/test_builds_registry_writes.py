"""Registry steps: what the plan learns of one that failed."""

from typing import Any

import pytest
from builds_world import NAMESPACE, BuildPlanWorld

from polyarch.builds.controller.informers import BuildRef
from polyarch.builds.controller.writes import Registries as RealRegistries
from polyarch.builds.controller.writes import RegistryWrites, WriteResult
from polyarch.builds.facts.build_facts import WriteFailure
from polyarch.builds.plan.document import Write
from polyarch.builds.registry import PublishFailure, PublishResult
from polyarch.kube.errors import Forbidden
from polyarch.oci.auth.credential_stores import NoCredentials
from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.documents import OCI_INDEX
from polyarch.oci.pull_sources import Configuration, sources
from polyarch.oci.reference import parse

REF = BuildRef("ImageBuild", NAMESPACE, "web")


class Registries:
    """Publishes nothing."""

    def __init__(self, trouble: PublishFailure) -> None:
        self._trouble = trouble

    async def publish(self, publication: Any, **_: Any) -> PublishFailure:
        return self._trouble

    async def move_tags(self, reference: str, tags: Any, **_: Any) -> PublishFailure:
        return self._trouble


async def pushed(world: BuildPlanWorld, trouble: PublishFailure) -> WriteFailure:
    """What came of the push of a plan."""
    (write,) = [each for each in world.plan().writes if each.verb == "push-index"]
    found = await RegistryWrites(Registries(trouble)).carry_out(REF, write, NoCredentials())
    assert isinstance(found, WriteFailure)
    return found


def both_built() -> BuildPlanWorld:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    return world


@pytest.mark.req("PL-851")
async def test_the_requests_of_a_build_count_against_its_namespace() -> None:
    """And not against one share of all builds, which a registry that hangs would take from them."""
    asked: list[str] = []

    class Connection:
        def using(self, credentials: Any, tenant: str) -> Any:
            asked.append(tenant)
            raise Forbidden(403, reason="Forbidden", message="enough")

    class Inspector:
        connection = Connection()

    registries = RealRegistries(Inspector())  # type: ignore[arg-type]
    (write,) = [each for each in both_built().plan().writes if each.verb == "push-index"]
    await RegistryWrites(registries).carry_out(REF, write, NoCredentials())
    assert asked == [NAMESPACE]


@pytest.mark.req("IN-042")
async def test_a_build_reads_by_the_credentials_of_the_cloud_and_writes_by_its_own_alone() -> None:
    """Whoever may create a pod may pull so, too; but nobody pushes with what the builder is."""
    image, own = "registry.cloud.example/base:1", NoCredentials()
    shown: dict[str, Any] = {}

    async def users(credentials: Any) -> list[str]:
        reference = parse(image)
        found = await credentials.candidates(reference, sources(reference, Configuration())[0])
        return [each.username for each in found if not each.is_anonymous]

    class Connection:
        def using(self, credentials: Any, tenant: str) -> Any:
            shown["write"] = credentials
            raise Forbidden(403, reason="Forbidden", message="enough")

    class Inspector:
        connection = Connection()

        async def inspect(self, reference: Any, *, credentials: Any, **_: Any) -> Any:
            shown["read"] = await users(credentials)

    registries = RealRegistries(Inspector(), Cloud())  # type: ignore[arg-type]
    await registries.inspect(image, credentials=own, fresh=False, tenant=NAMESPACE)
    (write,) = [each for each in both_built().plan().writes if each.verb == "push-index"]
    await RegistryWrites(registries).carry_out(REF, write, own)
    assert shown == {"read": [f"the cloud's for {NAMESPACE}"], "write": own}


class Cloud:
    """Credential plugins, asked on behalf of a namespace."""

    tenant = ""

    def of(self, tenant: str) -> "Cloud":
        view = Cloud()
        view.tenant = tenant
        return view

    async def candidates(self, *_: Any) -> list[Credential]:
        return [Credential(f"the cloud's for {self.tenant}", "p"), ANONYMOUS]


@pytest.mark.req("BD-219")
async def test_a_plan_that_learns_of_a_push_that_failed_does_not_push_again_at_once() -> None:
    world = both_built()
    trouble = PublishFailure(reason="RegistryUnreachable", message="HTTP 503", passing=True, retry_after=7.0)
    after = world.plan(failures=(await pushed(world, trouble),))
    assert not [each for each in after.writes if each.verb == "push-index"]
    assert after.requeue_after == 7.0


@pytest.mark.req("BD-177")
async def test_a_plan_that_learns_of_a_child_that_is_gone_builds_it_again() -> None:
    world = both_built()
    failure = await pushed(world, PublishFailure(reason="RegistryInconsistent", message="gone", missing=("arm64",)))
    phases = {each.architecture: each.phase for each in world.plan(failures=(failure,)).per_architecture}
    assert phases == {"amd64": "Built", "arm64": "Pending"}


@pytest.mark.req("BD-192")
async def test_a_push_that_is_denied_ends_the_run() -> None:
    world = both_built()
    failure = await pushed(world, PublishFailure(reason="PushDenied", message="denied"))
    after = world.plan(failures=(failure,))
    (status,) = [each.body["status"] for each in after.writes if (each.verb, each.kind) == ("status", "ImageBuildRun")]
    assert status["phase"] == "Failed"


class Willing(Registries):
    """Publishes, or has already."""

    def __init__(self, digest: str, *, changed: bool = True) -> None:
        super().__init__(PublishFailure(reason="PushDenied", message="nobody asks"))
        self._published = PublishResult(digest=digest, size=1, media_type=OCI_INDEX, children=(), changed=changed)

    async def publish(self, publication: Any, **_: Any) -> Any:
        return self._published

    async def move_tags(self, reference: str, tags: Any, **_: Any) -> Any:
        return self._published


@pytest.mark.req("BD-177")
async def test_what_was_published_has_to_be_what_was_planned() -> None:
    world = both_built()
    (write,) = [each for each in world.plan().writes if each.verb == "push-index"]
    planned = write.body["digest"]

    async def carried(digest: str, **more: Any) -> WriteResult | WriteFailure:
        return await RegistryWrites(Willing(digest, **more)).carry_out(REF, write, NoCredentials())

    assert await carried(planned) is WriteResult.DONE
    assert await carried(planned, changed=False) is WriteResult.NOT_NEEDED
    other = "sha256:" + "0" * 64
    found = await carried(other)
    assert isinstance(found, WriteFailure)
    assert found.code == "RegistryInconsistent"
    assert other in found.message
    assert planned in found.message


@pytest.mark.req("BD-177")
async def test_tags_are_moved_to_what_is_there_and_nothing_is_planned_of_it() -> None:
    tag = Write(verb="tag", name="web", reference="quay.io/team/web@sha256:" + "0" * 64, body={"tags": ["latest"]})
    assert await RegistryWrites(Willing("sha256:" + "0" * 64)).carry_out(REF, tag, NoCredentials()) is WriteResult.DONE


class Locked(Registries):
    """Credentials may not be read any more."""

    def __init__(self) -> None:
        super().__init__(PublishFailure(reason="PushDenied", message="nobody asks"))

    async def publish(self, publication: Any, **_: Any) -> PublishFailure:
        raise Forbidden(403, reason="Forbidden")


@pytest.mark.req("BD-331")
async def test_a_secret_that_may_not_be_read_is_not_a_push_that_was_denied() -> None:
    """An administrator took the binding away while the Jobs were at work; nothing has failed yet."""
    world = both_built()
    (write,) = [each for each in world.plan().writes if each.verb == "push-index"]
    found = await RegistryWrites(Locked()).carry_out(REF, write, NoCredentials())
    assert isinstance(found, WriteFailure)
    assert found.code == "NamespaceNotEnabled"
