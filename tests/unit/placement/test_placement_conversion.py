"""ClusterPodPlacementConfig between v1alpha1 and v1beta1: there and back nothing is lost."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.placement.api import V1ALPHA1, V1BETA1, annotations_to_keep, conversion_problems, to_v1alpha1, to_v1beta1
from polyarch.placement.names import FALLBACK_ANNOTATION, PLUGINS_ANNOTATION

SCORING = {"nodeAffinityScoring": {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 7}]}}


def beta(spec: dict[str, Any] | None, **metadata: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"apiVersion": V1BETA1, "kind": "ClusterPodPlacementConfig"}
    config["metadata"] = {"name": "cluster", **metadata}
    return config if spec is None else config | {"spec": spec}


def alpha(spec: dict[str, Any] | None, **annotations: str) -> dict[str, Any]:
    return beta(spec, annotations={KEYS[key]: text for key, text in annotations.items()}) | {"apiVersion": V1ALPHA1}


KEYS = {"fallback": FALLBACK_ANNOTATION, "plugins": PLUGINS_ANNOTATION}


@pytest.mark.req("PL-012")
def test_what_v1alpha1_does_not_know_is_read_as_annotations() -> None:
    """As clients of the predecessor's v1alpha1 expect it."""
    config = beta({"logVerbosity": "Debug", "fallbackArchitecture": "arm64", "plugins": SCORING})
    read = to_v1alpha1(config)
    assert read["apiVersion"] == V1ALPHA1
    assert read["spec"] == {"logVerbosity": "Debug"}
    assert read["metadata"]["annotations"][FALLBACK_ANNOTATION] == "arm64"
    assert json.loads(read["metadata"]["annotations"][PLUGINS_ANNOTATION]) == SCORING


@pytest.mark.req("PL-012")
def test_nothing_is_added_to_an_object_that_sets_neither() -> None:
    """No empty annotations."""
    read = to_v1alpha1(beta({"logVerbosity": "Normal", "fallbackArchitecture": ""}))
    assert read == beta({"logVerbosity": "Normal"}) | {"apiVersion": V1ALPHA1}


@pytest.mark.req("PL-012")
def test_a_manifest_of_v1alpha1_with_a_fallback_means_it() -> None:
    """Also without a spec of its own."""
    assert to_v1beta1(alpha(None, fallback="s390x"))["spec"] == {"fallbackArchitecture": "s390x"}
    stored = to_v1beta1(alpha({"logVerbosity": "Normal"}, fallback="s390x", plugins=json.dumps(SCORING)))
    assert stored == beta({"logVerbosity": "Normal", "fallbackArchitecture": "s390x", "plugins": SCORING})
    assert conversion_problems(stored) == ()


@pytest.mark.req("PL-012")
@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"fallback": "vax"}, ["'vax' is none of arm64, amd64"]),
        ({"fallback": ""}, ["none of arm64"]),
        ({"plugins": "{"}, ["not the JSON of spec.plugins"]),
        ({"plugins": "[" * 100_000}, ["not the JSON of spec.plugins"]),
        ({"plugins": '{"nodeAffinityScoring": {"enabled": true, "platforms": []}}'}, ["platforms"]),
        (
            {
                "plugins": '{"nodeAffinityScoring": {"enabled": true, "platforms": [{"architecture": "arm64",'
                ' "weight": 101}]}}'
            },
            ["weight"],
        ),
        (
            {
                "plugins": '{"nodeAffinityScoring": {"enabled": true, "platforms": [{"architecture": "arm64",'
                ' "weight": 1}, {"architecture": "arm64", "weight": 2}]}}'
            },
            ["arm64 twice"],
        ),
        ({"plugins": '{"execFormatErrorMonitor": {}}', "fallback": "vax"}, ["enabled", "'vax'"]),
    ],
    ids=["architecture", "empty", "no JSON", "deep", "no platforms", "weight", "twice", "both"],
)
def test_an_annotation_that_cannot_be_read_stays_and_is_named(annotations, said) -> None:
    """It would otherwise be stored as a field that no schema has checked."""
    written = alpha({"logVerbosity": "Normal"}, **annotations)
    stored = to_v1beta1(written)
    assert stored["spec"] == {"logVerbosity": "Normal", "fallbackArchitecture": ""}
    assert stored["metadata"] == written["metadata"]
    told = " ".join(conversion_problems(stored))
    assert all(part in told for part in said), told
    assert all(KEYS[key] in told for key in annotations)


@pytest.mark.req("PL-012", "PL-900 row 22")
def test_an_update_by_a_client_that_drops_the_annotations_keeps_the_plugins() -> None:
    before = to_v1alpha1(beta({"fallbackArchitecture": "arm64", "plugins": SCORING}, annotations={"own": "x"}))
    after = copy.deepcopy(before)
    after["metadata"]["annotations"] = {"own": "y"}
    after["spec"]["logVerbosity"] = "Debug"
    after["metadata"]["annotations"] |= annotations_to_keep(before, after)
    stored = to_v1beta1(after)
    assert (stored["spec"]["plugins"], stored["spec"]["fallbackArchitecture"]) == (SCORING, "arm64")
    assert annotations_to_keep(before, before) == {}


NAMES = st.text("abcxyz.-/", min_size=1, max_size=12)
VALUES = st.recursive(
    st.text(max_size=5) | st.integers(-5, 5) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PLATFORMS = st.lists(
    st.sampled_from(["arm64", "amd64", "ppc64le", "s390x"]), min_size=1, max_size=4, unique=True
).flatmap(
    lambda names: st.tuples(
        *(st.fixed_dictionaries({"architecture": st.just(name), "weight": st.integers(1, 100)}) for name in names)
    ).map(list)
)
PLUGINS = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinityScoring": st.fixed_dictionaries({"enabled": st.booleans(), "platforms": PLATFORMS}),
        "execFormatErrorMonitor": st.fixed_dictionaries({"enabled": st.booleans()}),
        "someLaterPlugin": VALUES,
    },
)
ARCHITECTURES = st.sampled_from(["arm64", "amd64", "ppc64le", "s390x"])
COMMON = {"logVerbosity": st.sampled_from(["Normal", "Debug"]), "namespaceSelector": VALUES, "someLaterField": VALUES}
ANNOTATIONS = st.dictionaries(NAMES, st.text(max_size=5), min_size=1, max_size=3)
OUTSIDE = {"status": VALUES, "someLaterMember": VALUES}
METADATA = {"annotations": ANNOTATIONS, "labels": ANNOTATIONS, "resourceVersion": st.just("7")}


def objects(version: str, spec: Any, metadata: Any) -> Any:
    return st.fixed_dictionaries(
        {"apiVersion": st.just(version), "kind": st.just("ClusterPodPlacementConfig"), "metadata": metadata},
        optional={"spec": spec, **OUTSIDE},
    )


BETA = objects(
    V1BETA1,
    st.fixed_dictionaries(
        {"fallbackArchitecture": ARCHITECTURES | st.just("")}, optional={"plugins": PLUGINS, **COMMON}
    ),
    st.fixed_dictionaries({"name": st.just("cluster")}, optional=METADATA),
)


@st.composite
def alphas(draw: Any) -> dict[str, Any]:
    config = draw(
        objects(
            V1ALPHA1,
            st.fixed_dictionaries({}, optional=COMMON),
            st.fixed_dictionaries({"name": st.just("cluster")}, optional=METADATA),
        )
    )
    carried = {}
    if "spec" in config and draw(st.booleans()):
        carried[FALLBACK_ANNOTATION] = draw(ARCHITECTURES | st.sampled_from(["vax", ""]))
    if "spec" in config and draw(st.booleans()):
        text = json.dumps(draw(PLUGINS), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        carried[PLUGINS_ANNOTATION] = draw(st.just(text) | st.just("{"))
    if carried:
        config["metadata"]["annotations"] = config["metadata"].get("annotations", {}) | carried
    return config


@pytest.mark.req("PL-012")
@given(BETA)
def test_from_v1beta1_there_and_back_is_the_same(config) -> None:
    """Unknown fields, status and metadata included."""
    before = copy.deepcopy(config)
    assert to_v1beta1(to_v1alpha1(config)) == config
    assert config == before, "nothing is changed in place"


@pytest.mark.req("PL-012")
@given(alphas())
def test_from_v1alpha1_there_and_back_is_the_same(config) -> None:
    """Annotations that cannot be read included."""
    before = copy.deepcopy(config)
    assert to_v1alpha1(to_v1beta1(config)) == config
    assert config == before, "nothing is changed in place"
