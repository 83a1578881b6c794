"""Subscriptions that take architecture constraints away (MA209)."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from bundling import dumped, in_terms, of
from linting import scanned

from polyarch.manifests import olm
from polyarch.manifests import operations as tree
from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.engine import RepairableFinding, lint
from polyarch.manifests.rules.subscriptions import Deployment, override_drafts
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform

pytestmark = pytest.mark.req("MF-083")

ARCH = in_terms({"arch": ["amd64", "arm64"]})["nodeAffinity"]
ZONE = in_terms({"zone": ["a"]})["nodeAffinity"]
BOTH = in_terms({"zone": ["a"], "arch": ["amd64"]})["nodeAffinity"]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def subscription(config: Mapping[str, Any], kind: str = "Subscription") -> dict[str, Any]:
    at = config if kind == "Subscription" else {"configType": "Inline", "inline": {"deploymentConfig": config}}
    return {
        "apiVersion": "operators.coreos.com/v1alpha1" if kind == "Subscription" else "olm.operatorframework.io/v1",
        "kind": kind,
        "metadata": {"name": "acme"},
        "spec": {"config": dict(at)},
    }


def alone(config: Mapping[str, Any], kind: str = "Subscription") -> list[RepairableFinding]:
    return of(lint(scanned(dumped(subscription(config, kind))), ImageInspections({})), "MA209")


def judged(config: Mapping[str, Any], *pods: Mapping[str, Any], kind: str = "Subscription") -> list[Any]:
    (subject,) = scanned(dumped(subscription(config, kind))).objects
    return list(override_drafts(subject, [Deployment(f"deployment d{index}", pod) for index, pod in enumerate(pods)]))


def restored(config: Mapping[str, Any], draft: Any) -> Any:
    assert draft.repair.operations, draft.repair.note
    after = tree.apply(yaml.safe_load(dumped(subscription(config))), draft.repair.operations)
    return olm.config_of(after)


# Without the bundle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Subscription", "ClusterExtension"])
def test_MA209_a_node_affinity_without_architecture(kind: str) -> None:
    (problem,) = alone({"affinity": {"nodeAffinity": ZONE}}, kind)
    assert (problem.finding.sub, problem.finding.severity) == ("replaces-node-affinity", Severity.ERROR)
    assert problem.finding.path.endswith("/nodeSelectorTerms/0")
    assert problem.repair is not None
    assert "--bundle" in problem.repair.note


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": ARCH},
        {"nodeAffinity": BOTH},
        {"nodeAffinity": {}},
        {},
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        {"podAntiAffinity": {REQUIRED: []}},
        None,
    ],
)
def test_MA209_without_the_bundle_nothing_is_lost_for_certain(affinity: Any) -> None:
    assert alone({"affinity": affinity}) == []


def test_MA209_an_empty_anti_affinity_is_reported_whenever_it_is_written() -> None:
    (problem,) = alone({"affinity": {"podAntiAffinity": {}}})
    assert (problem.finding.sub, problem.finding.severity) == ("anti-affinity-erases", Severity.ERROR)
    assert problem.finding.path == "/spec/config/affinity/podAntiAffinity"


@pytest.mark.parametrize("config", [{"affinity": "x"}, {"tolerations": {}}])
def test_MA209_is_silent_about_what_the_api_server_refuses(config: Any) -> None:
    assert alone(config) == []


# Against the bundle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", [{"nodeAffinity": ZONE}, {"nodeAffinity": {}}, {}])
def test_MA209_the_constraint_of_the_bundle_is_lost_and_restored(affinity: Any) -> None:
    pod = {"affinity": {"nodeAffinity": ARCH}}
    config = {"affinity": affinity}
    (draft,) = judged(config, pod)
    assert draft.sub == "replaces-node-affinity"
    beyond = tuple(f"linux/{each}" for each in ASSUMED_ARCHITECTURES if each not in ("amd64", "arm64"))
    assert draft.platforms.excess == beyond
    assert f"node affinity of deployment d0, which then admits {', '.join(beyond)}" in draft.message
    after = olm.apply_config(pod, restored(config, draft))
    admitted = sets.admitted(sets.constraints_of(after), sets.DEFAULT_UNIVERSE)
    assert admitted == {NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")}
    assert judged(restored(config, draft), pod) == []


def test_MA209_what_the_override_asks_for_stays() -> None:
    config = {"affinity": {"nodeAffinity": in_terms({"zone": ["a"]}, {"zone": ["b"]})["nodeAffinity"]}}
    (draft,) = judged(config, {"affinity": {"nodeAffinity": ARCH}})
    terms = restored(config, draft)["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    expected = in_terms({"zone": ["a"], "arch": ["amd64", "arm64"]}, {"zone": ["b"], "arch": ["amd64", "arm64"]})
    assert terms == expected["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def test_MA209_alternatives_of_the_bundle_become_terms_of_the_override() -> None:
    pod = {"affinity": in_terms({"arch": ["amd64"], "x": ["1"]}, {"arch": ["arm64"], "os": ["linux"]})}
    config = {"affinity": {"nodeAffinity": ZONE}}
    (draft,) = judged(config, pod)
    terms = restored(config, draft)["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    expected = in_terms({"zone": ["a"], "arch": ["amd64"]}, {"zone": ["a"], "arch": ["arm64"], "os": ["linux"]})
    assert terms == expected["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


@pytest.mark.parametrize(
    ("pod", "config"),
    [
        pytest.param({}, {"affinity": {"nodeAffinity": ZONE}}, id="the bundle had none"),
        pytest.param(
            {"affinity": {"nodeAffinity": ARCH}}, {"affinity": {"nodeAffinity": BOTH}}, id="the override has one"
        ),
        pytest.param({"affinity": {"nodeAffinity": ARCH}}, {"affinity": {"podAffinity": {}}}, id="node affinity kept"),
        pytest.param({"affinity": {"nodeAffinity": ARCH}}, {"nodeSelector": {"a": "1"}}, id="no affinity in it"),
        pytest.param(
            {"affinity": {"nodeAffinity": ARCH}},
            {"affinity": {}, "nodeSelector": {"kubernetes.io/arch": "amd64"}},
            id="the node selector constrains instead",
        ),
    ],
)
def test_MA209_nothing_is_lost(pod: Any, config: Any) -> None:
    assert judged(config, pod) == []


def test_MA209_deployments_with_different_constraints_are_not_repaired() -> None:
    other = {"affinity": in_terms({"arch": ["s390x"]})}
    (draft,) = judged({"affinity": {}}, {"affinity": {"nodeAffinity": ARCH}}, other)
    assert "d0, deployment d1" in draft.message
    assert (draft.repair.operations, "different constraints" in draft.repair.note) == ((), True)


@pytest.mark.req("MF-081")
def test_MA209_the_exception_of_MF_081_erases_the_constraint() -> None:
    pod = {"affinity": {"nodeAffinity": ARCH}}
    config = {"affinity": {"podAntiAffinity": {}}}
    (draft,) = judged(config, pod)
    assert draft.sub == "anti-affinity-erases"
    assert olm.apply_config(pod, restored(config, draft)) == pod
    config = {"affinity": {"podAntiAffinity": {}, "nodeAffinity": BOTH}}
    (draft,) = judged(config, pod)
    assert restored(config, draft) == {"affinity": {"nodeAffinity": BOTH}}


def test_MA209_an_anti_affinity_of_the_bundle_cannot_be_removed_alone() -> None:
    pod = {"affinity": {"nodeAffinity": ARCH, "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}
    (draft,) = judged({"affinity": {"podAntiAffinity": {}}}, pod)
    assert (draft.repair.operations, "no override can" in draft.repair.note) == ((), True)
    assert judged({"affinity": {"podAntiAffinity": {}}}, {"affinity": {"podAntiAffinity": {REQUIRED: []}}}) == []


def test_MA209_a_platform_key_of_the_node_selector_disappears() -> None:
    pod = {"nodeSelector": {"kubernetes.io/arch": "amd64", "disk": "ssd"}}
    config = {"nodeSelector": {"zone": "a"}}
    (draft,) = judged(config, pod)
    assert (draft.sub, draft.severity) == ("node-selector-drops", Severity.WARNING)
    assert "drops kubernetes.io/arch=amd64" in draft.message
    assert restored(config, draft) == {"nodeSelector": {"zone": "a", "kubernetes.io/arch": "amd64"}}


@pytest.mark.parametrize(
    "config",
    [{}, {"nodeSelector": None}, {"nodeSelector": {"beta.kubernetes.io/arch": "arm64"}}, {"tolerations": []}],
)
def test_MA209_a_platform_key_that_is_still_there(config: Any) -> None:
    assert judged(config, {"nodeSelector": {"kubernetes.io/arch": "amd64"}}) == []


def test_MA209_different_values_are_not_repaired() -> None:
    pods = [{"nodeSelector": {"kubernetes.io/arch": each}} for each in ("amd64", "arm64")]
    (draft,) = judged({"nodeSelector": {}}, *pods)
    assert "kubernetes.io/arch=amd64|arm64" in draft.message
    assert not draft.repair.operations
