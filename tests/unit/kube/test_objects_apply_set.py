"""An operator's objects are made, kept, and unmade by one list, with no request more than needed."""

from contextlib import nullcontext

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.apply import ApplyFailed, ApplySet
from polyarch.kube.errors import Forbidden, Invalid, StatusCause, TooManyRequests
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    ObjectRef,
    in_order,
)
from polyarch.objects import ObjectKey, Unstructured

LABEL = "polyarch.dev/part-of"
WEB, SETTINGS = ObjectKey("n", "web"), ObjectKey("n", "settings")


def deployment(replicas=2, *, name="web", **spec):
    metadata = {"name": name, "namespace": "n", "labels": {"app": "web"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, **spec}}


def configmap(name="settings", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": data}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def api(clock):
    return FakeApi(clock)


def apply_set(api, **options):
    kinds = [(DEPLOYMENTS, "n"), (CONFIGMAPS, "n")]
    return ApplySet(api, api, kinds=kinds, label=LABEL, clock=api.clock, **options)


@pytest.fixture
def objects(api):
    return apply_set(api)


@pytest.mark.req("KR-051")
async def test_objects_are_made_with_what_they_need_first_and_carry_the_label(api, objects):
    outcome = await objects.apply([deployment(), configmap(a="1")], part_of="x")
    assert api.sent() == ["apply configmaps settings", "apply deployments.apps web"]
    assert outcome.changed
    assert api.objects[DEPLOYMENTS, *WEB]["metadata"]["labels"] == {"app": "web", LABEL: "x"}


@pytest.mark.req("KR-051")
async def test_a_pass_that_finds_nothing_to_change_sends_nothing(api, objects):
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    api.sent()
    outcome = await objects.apply([deployment(), configmap(a="1")], part_of="x")
    assert api.sent() == []
    assert not outcome.changed
    another = apply_set(api)
    await another.apply([deployment(), configmap(a="1")], part_of="x")
    assert api.sent() == [], "nor does the next leader"


@pytest.mark.req("KR-051")
async def test_only_what_differs_is_sent(api, objects):
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    api.sent()
    outcome = await objects.apply([deployment(3), configmap(a="1")], part_of="x")
    assert api.sent() == ["apply deployments.apps web"]
    assert outcome.applied[0].differences == (".spec.replicas",)


@pytest.mark.req("KR-051")
async def test_the_end_of_one_part_costs_the_others_nothing(api, objects):
    """What was sent for another owner is remembered, also before the cache shows it."""
    api.holds_back = True
    await objects.apply([configmap(a="1")], part_of="x")
    await objects.delete("y")
    api.sent()
    await objects.apply([configmap(a="1")], part_of="x")
    assert api.sent() == []


@pytest.mark.req("KR-051")
async def test_of_others_survives_what_an_administrator_may_give_and_nothing_else(api, objects):
    def pod(**spec):
        return {"spec": {"restartPolicy": "Always", **spec}}

    await objects.apply([deployment(template=pod())], part_of="x")
    given = pod(nodeSelector={"disk": "fast"})
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(template=given), manager="kubectl")
    api.sent()
    assert not (await objects.apply([deployment(template=pod())], part_of="x")).changed
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(paused=True), manager="kubectl")
    await objects.apply([deployment(template=pod())], part_of="x")
    assert api.objects[DEPLOYMENTS, *WEB]["spec"] == {"replicas": 2, "template": given}


@pytest.mark.req("KR-051")
async def test_a_field_that_we_desire_no_longer_is_given_up(api, objects):
    await objects.apply([deployment(minReadySeconds=5)], part_of="x")
    await objects.apply([deployment()], part_of="x")
    assert api.objects[DEPLOYMENTS, *WEB]["spec"] == {"replicas": 2}


@pytest.mark.req("KR-051", "PL-501")
async def test_what_somebody_changed_is_put_right_and_told_with_their_name(api, objects):
    await objects.apply([deployment()], part_of="x")
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(replicas=9), manager="kubectl")
    outcome = await objects.apply([deployment()], part_of="x")
    assert api.objects[DEPLOYMENTS, *WEB]["spec"]["replicas"] == 2
    assert [str(each) for each in outcome.applied[0].taken] == [".spec.replicas belongs to kubectl"]
    assert outcome.contested == ()


@pytest.mark.req("KR-051")
async def test_without_force_a_conflict_names_the_other_manager(api):
    objects = apply_set(api, force=False)
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(replicas=9), manager="kubectl")
    with pytest.raises(ApplyFailed, match=r"^deployments\.apps n/web: \.spec\.replicas belongs to kubectl$"):
        await objects.apply([deployment(), configmap(a="2")], part_of="x")
    assert api.objects[DEPLOYMENTS, *WEB]["spec"]["replicas"] == 9
    assert api.objects[CONFIGMAPS, *SETTINGS]["data"] == {"a": "2"}, "the others are not held up"


@pytest.mark.req("KR-051")
@pytest.mark.parametrize("force", [True, False])
async def test_without_force_an_object_that_cannot_be_changed_is_not_made_again(api, force):
    objects = apply_set(api, force=force)
    await objects.apply([deployment()], part_of="x")
    immutable = StatusCause("FieldValueInvalid", "field is immutable", "spec.selector")
    api.refuse(DEPLOYMENTS, "apply", error=[Invalid(422, reason="Invalid", causes=(immutable,))])
    with nullcontext() if force else pytest.raises(ApplyFailed):
        await objects.apply([deployment(3)], part_of="x")
    assert api.deleted == (["web"] if force else [])


@pytest.mark.req("PL-501")
async def test_what_is_taken_back_again_and_again_is_not_fought_over(api, clock, objects):
    await objects.apply([deployment()], part_of="x")
    for _ in range(5):
        api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(replicas=9), manager="scaler")
        outcome = await objects.apply([deployment()], part_of="x")
        clock.advance(1)
    [(ref, conflict)] = outcome.contested
    assert (str(ref), str(conflict)) == ("deployments.apps n/web", ".spec.replicas belongs to scaler")
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(replicas=9), manager="scaler")
    api.sent()
    assert (await objects.apply([deployment()], part_of="x")).contested
    assert api.sent() == []
    clock.advance(61)
    outcome = await objects.apply([deployment()], part_of="x")
    assert api.sent() == ["apply deployments.apps web"], "it is tried again later"
    assert outcome.contested == ()


@pytest.mark.req("PL-501")
async def test_two_processes_of_one_name_do_not_fight_without_end(api, clock, objects):
    """A second installation: no other manager's name shows that it changes what we have applied."""
    another, written = apply_set(api), 0
    for _ in range(20):
        for each, document in ((objects, deployment()), (another, deployment(minReadySeconds=5))):
            written += (await each.apply([document], part_of="x")).changed
        clock.advance(1)
    assert written <= 12
    [(_, conflict)] = (await objects.apply([deployment()], part_of="x")).contested
    assert str(conflict) == ".spec.minReadySeconds belongs to somebody unknown"


@pytest.mark.req("KR-051")
async def test_what_is_desired_no_longer_is_deleted_after_a_live_read(api, objects):
    await objects.apply([deployment(), configmap(a="1"), configmap("more")], part_of="x")
    api.sent()
    outcome = await objects.apply([configmap(a="1")], part_of="x")
    assert api.sent() == [
        "get deployments.apps web",
        "delete deployments.apps web",
        "get configmaps more",
        "delete configmaps more",
    ]
    assert [str(ref) for ref in outcome.deleted] == ["deployments.apps n/web", "configmaps n/more"]


@pytest.mark.req("KR-051")
async def test_what_the_live_read_shows_to_be_anothers_is_left(api, objects):
    """The cache is behind: meanwhile somebody took the label away, or made a namesake."""
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    api.holds_back = True
    api.change(DEPLOYMENTS, WEB, lambda d: d["metadata"]["labels"].pop(LABEL))
    outcome = await objects.apply([configmap(a="1")], part_of="x")
    assert (DEPLOYMENTS, *WEB) in api.objects
    assert (outcome.deleted, outcome.leaving) == ((), ())


@pytest.mark.req("KR-051")
async def test_parts_do_not_touch_each_others_objects(api, objects):
    await objects.apply([configmap("one")], part_of="x")
    await objects.apply([configmap("two")], part_of="y")
    await objects.apply([], part_of="x")
    assert [name for _, _, name in api.objects] == ["two"]


@pytest.mark.req("KR-051")
async def test_an_object_that_is_going_is_made_anew_when_it_is_gone(api, objects):
    await objects.apply([configmap(a="1")], part_of="x")
    api.change(CONFIGMAPS, SETTINGS, lambda d: d["metadata"].update(deletionTimestamp="t", finalizers=["a/b"]))
    api.sent()
    outcome = await objects.apply([configmap(a="1")], part_of="x")
    assert [str(ref) for ref in outcome.leaving] == ["configmaps n/settings"]
    assert api.sent() == []
    api.remove(CONFIGMAPS, "settings", "n")
    assert (await objects.apply([configmap(a="1")], part_of="x")).changed


@pytest.mark.req("KR-022")
async def test_a_cache_that_is_behind_leads_to_no_second_write(api, objects):
    api.holds_back = True
    await objects.apply([deployment()], part_of="x")
    api.sent()
    await objects.apply([deployment()], part_of="x")
    assert api.sent() == [], "the cache does not show the object yet, but it was made"
    await objects.apply([deployment(3)], part_of="x")
    assert api.sent() == ["apply deployments.apps web"], "something else is desired, and that is sent"
    api.catch_up()
    await objects.apply([deployment(3)], part_of="x")
    assert api.sent() == []


@pytest.mark.req("KR-051")
async def test_a_value_that_the_server_writes_in_its_own_form_is_not_sent_for_ever(api, objects):
    """``cpu: 1000m`` is stored as ``1``."""
    api.admit = lambda _, document: document["spec"].update(cpu="1")
    await objects.apply([deployment(cpu="1000m")], part_of="x")
    api.sent()
    await objects.apply([deployment(cpu="1000m")], part_of="x")
    assert api.sent() == []
    api.change(DEPLOYMENTS, WEB, lambda d: d["spec"].update(cpu="5"), manager="kubectl")
    assert (await objects.apply([deployment(cpu="1000m")], part_of="x")).changed, "but a change is seen"


@pytest.mark.req("KR-051")
async def test_a_field_that_the_server_drops_is_not_sent_for_ever(api, objects):
    """``matchLabelKeys`` of a pod affinity term, as of Kubernetes 1.30: it is in an atomic list."""
    term = {"topologyKey": "kubernetes.io/hostname", "matchLabelKeys": ["pod-template-hash"]}
    wanted = deployment(preferred=[{"weight": 100, "podAffinityTerm": term}])
    api.admit = lambda _, document: document["spec"]["preferred"][0]["podAffinityTerm"].pop("matchLabelKeys", None)
    assert (await objects.apply([wanted], part_of="x")).changed
    api.sent()
    for number in range(3):
        api.change(DEPLOYMENTS, WEB, lambda d, number=number: d.update(status={"observedGeneration": number}))
        assert not (await objects.apply([wanted], part_of="x")).changed
    assert api.sent() == []


@pytest.mark.req("KR-051")
async def test_one_refusal_holds_up_nothing_but_deletions(api, objects):
    await objects.apply([configmap("old")], part_of="x")
    api.refuse(CONFIGMAPS, "apply", error=Forbidden(403, message="no"))
    with pytest.raises(ApplyFailed, match=r"configmaps n/settings: .*403.*no") as failed:
        await objects.apply([configmap(a="1"), deployment()], part_of="x")
    assert (DEPLOYMENTS, *WEB) in api.objects
    assert (CONFIGMAPS, "n", "old") in api.objects, "nothing is taken away before its successor is there"
    assert [str(step.ref) for step in failed.value.outcome.applied] == ["deployments.apps n/web"]
    assert failed.value.retry_after is None


@pytest.mark.req("KR-051")
async def test_a_server_that_asks_for_patience_gets_it(api, objects):
    """The queue waits at least for so long, see ``WorkQueue.retry``."""
    api.refuse(CONFIGMAPS, "apply", error=TooManyRequests(429, retry_after=7))
    with pytest.raises(ApplyFailed) as failed:
        await objects.apply([configmap(a="1")], part_of="x")
    assert failed.value.retry_after == 7


@pytest.mark.req("KR-051", "PL-522")
async def test_an_end_is_made_step_by_step_and_believed_from_live_lists(api, objects):
    """Users of an object go before the object, whatever the caches show."""
    api.holds_back = True
    await objects.apply([deployment(), configmap(a="1"), configmap("more")], part_of="x")
    api.sent()
    steps = []
    while left := await objects.delete("x"):
        steps.append([ref.key.name for ref in left])
    assert steps == [["settings", "more", "web"], ["settings", "more"]]
    assert [line for line in api.sent() if line.startswith("delete")] == [
        "delete deployments.apps web",
        "delete configmaps settings",
        "delete configmaps more",
    ]
    assert not api.objects


@pytest.mark.req("KR-051")
async def test_an_end_waits_for_what_holds_an_object(api, objects):
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    api.change(DEPLOYMENTS, WEB, lambda d: d["metadata"].update(finalizers=["a/b"]))
    for _ in range(3):
        assert [ref.key.name for ref in await objects.delete("x")] == ["settings", "web"]
    assert len([line for line in api.sent() if line.startswith("delete")]) == 1
    api.remove(DEPLOYMENTS, "web", "n")
    assert [ref.key.name for ref in await objects.delete("x")] == ["settings"]
    assert await objects.delete("x") == ()


@pytest.mark.req("KR-051")
async def test_mistakes_of_the_caller_are_told(api, objects):
    with pytest.raises(ValueError, match="v1 Secret s is of no kind of this apply set"):
        await objects.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}], part_of="x")
    with pytest.raises(ValueError, match="configmaps elsewhere/c is in no namespace"):
        await objects.apply(
            [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "elsewhere"}}],
            part_of="x",
        )
    api.informer(DEPLOYMENTS, Unstructured).sync(False)
    with pytest.raises(RuntimeError, match="before its caches were complete"):
        await objects.apply([], part_of="x")
    assert api.sent() == []


@pytest.mark.req("KR-052")
async def test_a_change_of_an_owned_object_is_told(api, objects):
    told = []
    objects.add_handler(lambda change: told.append(change.key.name))
    await objects.apply([deployment(), configmap(a="1")], part_of="x")
    assert told == ["settings", "web"]
    assert objects.get(DEPLOYMENTS, WEB).document["spec"]["replicas"] == 2
    assert objects.get(DEPLOYMENTS, ObjectKey("n", "none")) is None


@pytest.mark.req("KR-051")
def test_the_order_in_which_objects_need_each_other():
    kinds = (MUTATING_WEBHOOKS, DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICES, SERVICE_ACCOUNTS, CRDS, NAMESPACES)
    refs = [ObjectRef(resource, ObjectKey("n", "x")) for resource in (*kinds, CLUSTER_ROLES)]
    assert [ref.resource.kind for ref in in_order(refs)] == [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
        "MutatingWebhookConfiguration",
    ]
