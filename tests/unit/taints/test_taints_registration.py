"""The policy that taints nodes when they register, and who keeps it."""

from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import Forbidden
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import Resource
from polyarch.objects import ObjectKey, Unstructured
from polyarch.selectors import Requirement, Selector
from polyarch.taints.documents import bindings, newest_served, policies, registration_policy
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.registration import RegistrationPolicyController
from polyarch.taints.settings import TaintSettings

NAME = "polyarch-architecture-taints"
KEY = ObjectKey("", NAME)


class RegistrationPolicy:
    """The policy's keeper, with an API server that serves these versions of policies."""

    def __init__(self, *versions: str, settings: TaintSettings | None = None) -> None:
        self.api = FakeApi(kinds=tuple(kind(version) for version in versions for kind in (policies, bindings)))
        self.clock = ManualClock()
        self.settings: TaintSettings | None = settings or TaintSettings()
        self.is_ready = True
        self.released: frozenset[str] | None = frozenset({"arm64"})
        self.keeper = RegistrationPolicyController(
            facts=self,  # type: ignore[arg-type]
            client=self.api,
            informers=self.api,  # type: ignore[arg-type]
            released=lambda: self.released,
            wake=lambda: None,
            clock=self.clock,
            metrics=TaintMetrics(Metrics()),
        )

    @property
    def sent(self) -> list[str]:
        """Requests of the last look but discovery, without the names."""
        return [f"{verb} {kind.partition('.')[0]}" for verb, kind, _ in self.api.requests if verb != "discover"]

    def spec(self, resource: Resource) -> Any:
        return self.api.read(resource, NAME)["spec"]

    def change(self, **spec: Any) -> None:
        """Somebody else edits the policy."""
        self.api.change(policies("v1"), KEY, lambda policy: policy["spec"].update(spec), manager="kubectl")

    async def look(self) -> Any:
        self.api.requests.clear()
        return await self.keeper.reconcile(KEY)


@pytest.mark.req("TN-027")
@pytest.mark.parametrize(
    ("versions", "used"),
    [(("v1",), "v1"), (("v1beta1", "v1alpha1"), "v1beta1"), (("v1alpha1",), "v1alpha1"), (("v1beta1", "v1"), "v1")],
)
async def test_the_newest_served_version_is_used(versions: tuple[str, ...], used: str) -> None:
    world = RegistrationPolicy(*versions)
    assert await world.look() == NoRequeue()
    assert world.sent == ["apply mutatingadmissionpolicies", "apply mutatingadmissionpolicybindings"]
    assert world.spec(bindings(used)) == {"policyName": NAME}


@pytest.mark.req("TN-027")
async def test_a_leader_that_knows_little_yet_leaves_the_policy_as_it_is() -> None:
    """Nodes go on registering while the Lease changes hands, and while the API server does not answer."""
    world = RegistrationPolicy("v1")
    await world.look()
    before = world.spec(policies("v1"))
    world.settings, world.is_ready = None, False
    assert isinstance(await world.look(), RequeueAfter)
    world.settings, world.is_ready, world.released = TaintSettings(), True, None
    assert isinstance(await world.look(), RequeueAfter)
    assert world.sent == []
    assert world.spec(policies("v1")) == before


@pytest.mark.req("TN-027")
def test_one_kind_alone_is_not_enough() -> None:
    assert newest_served([policies("v1")]) is None


@pytest.mark.req("TN-027")
async def test_where_it_is_not_served_that_is_known_and_asked_again_later() -> None:
    world = RegistrationPolicy()
    assert await world.look() == RequeueAfter(600.0)
    assert world.keeper.is_served is False
    world.api.kinds = (policies("v1"), bindings("v1"))
    await world.look()
    assert world.sent == []
    world.clock.advance(600)
    assert await world.look() == NoRequeue()
    assert world.keeper.is_served is True


@pytest.mark.req("TN-027")
async def test_the_list_is_kept_up_to_date_and_nothing_is_written_without_need() -> None:
    world = RegistrationPolicy("v1")
    await world.look()
    await world.look()
    assert world.sent == []
    world.released = frozenset({"arm64", "s390x"})
    await world.look()
    assert world.sent == ["apply mutatingadmissionpolicies"]
    assert '["arm64", "s390x"]' in world.spec(policies("v1"))["matchConditions"][0]["expression"]


@pytest.mark.req("TN-027")
async def test_what_somebody_changed_is_set_right() -> None:
    world = RegistrationPolicy("v1")
    await world.look()
    world.change(mutations=[])
    await world.look()
    assert world.sent == ["apply mutatingadmissionpolicies"]


@pytest.mark.req("TN-027")
async def test_a_condition_that_somebody_added_is_taken_first_so_that_the_apply_removes_it() -> None:
    """A condition more would let nodes register without the taint, and server-side apply leaves it beside ours."""
    world = RegistrationPolicy("v1")
    await world.look()
    conditions = world.spec(policies("v1"))["matchConditions"]
    world.change(matchConditions=[*conditions, {"name": "never", "expression": "false"}])
    await world.look()
    assert world.sent == ["patch mutatingadmissionpolicies", "apply mutatingadmissionpolicies"]
    await world.look()
    assert world.sent == []


@pytest.mark.req("TN-027", "TN-070")
@pytest.mark.parametrize(
    "settings",
    [TaintSettings(state="removing"), TaintSettings(at_registration="none"), None],
    ids=["removing", "none", "no object"],
)
async def test_it_is_deleted_when_it_is_not_wanted_binding_first(settings: TaintSettings | None) -> None:
    world = RegistrationPolicy("v1")
    await world.look()
    world.settings = settings  # type: ignore[assignment]
    await world.look()
    assert world.sent == ["delete mutatingadmissionpolicybindings", "delete mutatingadmissionpolicies"]
    assert world.keeper.is_gone
    await world.look()
    assert world.sent == []


@pytest.mark.req("TN-010")
async def test_paused_does_not_touch_it() -> None:
    world = RegistrationPolicy("v1", settings=TaintSettings(state="paused"))
    assert await world.look() == NoRequeue()
    assert world.sent == []


@pytest.mark.req("TN-027")
async def test_a_refusal_is_told_until_it_ends() -> None:
    world = RegistrationPolicy("v1")
    world.api.refuse(policies("v1"), "apply")
    with pytest.raises(Forbidden):
        await world.look()
    assert "not up to date" in world.keeper.problem
    world.api.allow()
    await world.look()
    assert world.keeper.problem == ""


@pytest.mark.req("TN-027")
async def test_a_policy_that_may_not_be_read_is_told_and_not_asked_for_all_the_time() -> None:
    world = RegistrationPolicy("v1")
    await world.look()
    refused = world.api.informer(policies("v1"), Unstructured)
    refused.sync(False)
    refused.problem = "may not watch mutatingadmissionpolicies"
    assert await world.look() == RequeueAfter(10.0)
    assert world.keeper.problem == "may not watch mutatingadmissionpolicies"


@pytest.mark.req("TN-027")
def test_only_nodes_that_are_managed_are_tainted() -> None:
    settings = TaintSettings(
        exclude_control_plane=True,
        node_selector=Selector((Requirement("pool", "In", ("a", "b")),)),
        operating_systems=frozenset({"linux", "windows"}),
    )
    policy, _ = registration_policy(settings, {"arm64", "amd64"}, version="v1")
    constraints = policy["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert constraints == [
        {"key": "kubernetes.io/arch", "operator": "Exists"},
        {"key": "polyarch.dev/taints", "operator": "NotIn", "values": ["disabled"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux", "windows"]},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"},
        {"key": "node-role.kubernetes.io/master", "operator": "DoesNotExist"},
        {"key": "pool", "operator": "In", "values": ["a", "b"]},
    ]
    conditions = [each["expression"] for each in policy["spec"]["matchConditions"]]
    assert conditions[0] == 'object.metadata.labels["kubernetes.io/arch"] in ["arm64"]', "a primary one is not tainted"
    assert "supported-arch" in conditions[1]
