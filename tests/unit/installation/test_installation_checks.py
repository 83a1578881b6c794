"""What the checks say of a cluster, from what was read of it."""

from typing import Any

import pytest

from polyarch.installation import objects, preflight
from polyarch.installation.preflight import Ownership, PreflightCheck, PreflightFacts, whose
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.errors import Forbidden
from polyarch.kube.rbac import Permission
from polyarch.kube.resources import NAMESPACES, ObjectRef
from polyarch.objects import ObjectKey
from polyarch.operator.components.operator_rbac import PREDECESSOR
from polyarch.placement import names

HERE = "polyarch-system"
Json = dict[str, Any]
DOCUMENTS = {preflight.ref_of(each): each for each in objects.documents(InstallationSettings())}
ABSENT: dict[ObjectRef, Json | None] = dict.fromkeys(DOCUMENTS)


def ref(kind: str) -> ObjectRef:
    return next(each for each in DOCUMENTS if each.resource.kind == kind)


def live(kind: str, labels: Json | None = None, annotations: Json | None = None, manager: str = "kubectl") -> Json:
    metadata = {"name": ref(kind).key.name, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": {**metadata, "managedFields": [{"manager": manager, "operation": "Update"}]}}


def deployment(name: str, namespace: str, replicas: int = 1, labels: Json | None = None) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"replicas": replicas},
    }


def said(
    found: Json | None = None, *deployments: Json, version: tuple[int, int] = (1, 31), kind: str = "ClusterRole"
) -> list[PreflightCheck]:
    facts = PreflightFacts(version, {**ABSENT, ref(kind): found}, deployments)
    return list(preflight.checks(facts, namespace=HERE))


def refused(checks: list[PreflightCheck]) -> list[PreflightCheck]:
    return [each for each in checks if each.outcome == "refused"]


@pytest.mark.req("IN-002")
def test_an_empty_cluster_passes_and_every_check_is_listed() -> None:
    checks = said()
    assert [each.name for each in checks] == ["Kubernetes", "Rights", "Installation", "Objects"]
    assert {each.outcome for each in checks} == {"ok"}


@pytest.mark.req("IN-002", "PL-504")
@pytest.mark.parametrize(
    ("version", "passes"), [((1, 29), False), ((1, 30), True), ((1, 36), True), ((2, 0), True), ((1, 9), False)]
)
def test_kubernetes_from_1_30_on(version: tuple[int, int], passes: bool) -> None:
    found = refused(said(version=version))
    assert [each.name for each in found] == ([] if passes else ["Kubernetes"])
    assert all("1.30" in each.action for each in found)


@pytest.mark.req("IN-002")
def test_missing_rights_are_named_with_their_namespace() -> None:
    denied = ((Permission("create", "", "secrets"), HERE), (Permission("patch", "apps", "deployments", "x"), ""))
    (found,) = refused(list(preflight.checks(PreflightFacts((1, 31), ABSENT, (), denied), namespace=HERE)))
    assert found.message == f"not allowed: create secrets in namespace {HERE}, patch deployments.apps x"


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    ("kind", "labels", "outcome", "words"),
    [
        pytest.param("ClusterRole", {"app.kubernetes.io/part-of": "polyarch"}, "ok", "before", id="ours"),
        pytest.param("ClusterRole", {}, "refused", "not polyarch's", id="foreign"),
        pytest.param("ClusterRole", {names.OPERAND_LABEL: names.OPERAND}, "note", "taken over", id="of an earlier one"),
        pytest.param("CustomResourceDefinition", {}, "note", "taken over", id="definitions of the predecessor"),
        pytest.param("ClusterPodPlacementConfig", {}, "ok", "stays", id="custom resources"),
        pytest.param(
            "Deployment",
            {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": "polyarch"},
            "refused",
            "Helm",
            id="of Helm",
        ),
        pytest.param("Deployment", {"olm.owner": "polyarch.v1"}, "refused", "OLM", id="of OLM"),
    ],
)
def test_whose_objects_of_the_same_names_are(kind: str, labels: Json, outcome: str, words: str) -> None:
    (found,) = [each for each in said(live(kind, labels), kind=kind) if each.name == "Objects"]
    assert found.outcome == outcome
    assert words in found.message
    assert kind in found.message
    assert bool(found.action) == (outcome == "refused")


@pytest.mark.req("IN-002", "PL-503")
@pytest.mark.parametrize(
    ("deployments", "outcome", "words"),
    [
        pytest.param([deployment(PREDECESSOR, "mto")], "refused", "--replicas=0", id="a predecessor that runs"),
        pytest.param([deployment(PREDECESSOR, HERE)], "refused", "--replicas=0", id="even in the same namespace"),
        pytest.param([deployment(PREDECESSOR, "mto", 0)], "refused", "--namespace mto", id="stopped, elsewhere"),
        pytest.param([deployment(PREDECESSOR, HERE, 0)], "note", "taken over", id="stopped, here"),
        pytest.param(
            [deployment(PREDECESSOR, HERE, 0), deployment(names.CONTROLLER, HERE)],
            "note",
            "taken over",
            id="with its operands",
        ),
        pytest.param([deployment(names.CONTROLLER, "other")], "refused", "--namespace other", id="earlier, elsewhere"),
        pytest.param([deployment(names.WEBHOOK, HERE)], "note", "without operator", id="earlier, here"),
        pytest.param([deployment(names.OPERATOR, "other")], "refused", "--namespace other", id="polyarch, elsewhere"),
        pytest.param(
            [deployment(names.OPERATOR, HERE, labels={"app.kubernetes.io/version": "0.1.0"})], "ok", "0.1.0", id="ours"
        ),
    ],
)
def test_other_installations(deployments: list[Json], outcome: str, words: str) -> None:
    found = [each for each in said(None, *deployments) if each.name in ("Installation", "Predecessor")]
    assert [each.outcome for each in found] == [outcome]
    assert words in f"{found[0].message} {found[0].action}"


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    ("name", "manager", "expected"),
    [
        pytest.param("team", "kubectl", Ownership.SHARED, id="somebody else's, who labelled it so"),
        pytest.param("team", "polyarch-install", Ownership.OURS, id="made by polyarch install"),
        pytest.param(HERE, "kubectl", Ownership.OURS, id="the usual one, made by kubectl apply -k"),
    ],
)
def test_a_namespace_is_ours_if_polyarch_labelled_it(name: str, manager: str, expected: Ownership) -> None:
    part_of = "app.kubernetes.io/part-of"
    fields = {"f:metadata": {"f:labels": {f"f:{part_of}": {}}}}
    entries = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    found = {"metadata": {"name": name, "labels": {part_of: "polyarch"}, "managedFields": entries}}
    assert whose(ObjectRef(NAMESPACES, ObjectKey("", name)), found) is expected


@pytest.mark.req("IN-002")
def test_what_the_dry_run_was_told_is_passed_on_with_what_to_do() -> None:
    problem = Forbidden(403, message="user bob is attempting to grant RBAC permissions not currently held")
    facts = PreflightFacts((1, 31), ABSENT, (), (), {ref("ClusterRole"): problem})
    (found,) = refused(list(preflight.checks(facts, namespace=HERE)))
    assert problem.message in found.message
    assert "only who has a right may grant it" in found.action
