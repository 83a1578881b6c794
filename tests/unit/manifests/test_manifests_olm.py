"""What OLM makes of a pod specification."""

import copy
from typing import Any

import pytest
from bundling import in_terms

from polyarch.manifests import olm

NODE = in_terms({"arch": ["amd64"]})["nodeAffinity"]
OTHER = in_terms({"zone": ["a"]})["nodeAffinity"]
POD = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
ABSENT: Any = object()


@pytest.mark.req("MF-080", "MF-081")
@pytest.mark.parametrize(
    ("own", "override", "expected"),
    [
        pytest.param({"nodeAffinity": NODE}, ABSENT, {"nodeAffinity": NODE}, id="absent: unchanged"),
        pytest.param({"nodeAffinity": NODE}, None, {"nodeAffinity": NODE}, id="null: unchanged"),
        pytest.param(ABSENT, {"nodeAffinity": OTHER}, {"nodeAffinity": OTHER}, id="no affinity: becomes the override"),
        pytest.param({}, {"nodeAffinity": OTHER}, {"nodeAffinity": OTHER}, id="empty affinity: becomes the override"),
        pytest.param({"nodeAffinity": None}, {"podAffinity": POD}, {"podAffinity": POD}, id="null members are absent"),
        pytest.param({}, {}, ABSENT, id="empty over empty: absent"),
        pytest.param(ABSENT, {}, ABSENT, id="empty over absent: absent"),
        pytest.param({"nodeAffinity": NODE}, {}, ABSENT, id="empty override removes all"),
        pytest.param({"nodeAffinity": NODE}, {"nodeAffinity": None}, ABSENT, id="an override of nulls is empty"),
        pytest.param(
            {"nodeAffinity": NODE, "podAffinity": POD},
            {"nodeAffinity": OTHER},
            {"nodeAffinity": OTHER, "podAffinity": POD},
            id="replaced wholly, the others kept",
        ),
        pytest.param(
            {"nodeAffinity": NODE, "podAffinity": POD},
            {"nodeAffinity": {}},
            {"podAffinity": POD},
            id="empty attribute removes it",
        ),
        pytest.param(
            {"nodeAffinity": NODE, "podAffinity": POD},
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}},
            {"podAffinity": POD},
            id="an attribute of nulls is empty",
        ),
        pytest.param(
            {"nodeAffinity": NODE},
            {"nodeAffinity": None, "podAffinity": POD},
            {"nodeAffinity": NODE, "podAffinity": POD},
            id="null keeps",
        ),
        pytest.param({"nodeAffinity": NODE}, {"nodeAffinity": {}}, ABSENT, id="nothing left: removed"),
        pytest.param({"podAffinity": POD}, {"podAffinity": {}}, ABSENT, id="podAffinity empty is no exception"),
        pytest.param(
            {"nodeAffinity": NODE},
            {"podAntiAffinity": POD},
            {"nodeAffinity": NODE, "podAntiAffinity": POD},
            id="podAntiAffinity that says something is no exception",
        ),
        pytest.param(
            {"nodeAffinity": NODE, "podAffinity": POD},
            {"nodeAffinity": OTHER, "podAntiAffinity": {}},
            ABSENT,
            id="the exception: podAntiAffinity empty removes the whole affinity",
        ),
        pytest.param(
            ABSENT, {"podAntiAffinity": {}}, {"podAntiAffinity": {}}, id="no exception without affinity of its own"
        ),
    ],
)
def test_MF_081_affinity(own: Any, override: Any, expected: Any) -> None:
    pod = {"containers": []} | ({} if own is ABSENT else {"affinity": own})
    before = copy.deepcopy(pod)
    result = olm.apply_config(pod, {} if override is ABSENT else {"affinity": override})
    assert result.get("affinity", ABSENT) == expected
    assert pod == before, "the input is not changed"


@pytest.mark.req("MF-081")
def test_MF_081_the_documented_rule_has_no_exception() -> None:
    pod = {"affinity": {"nodeAffinity": NODE, "podAntiAffinity": POD}}
    config = {"affinity": {"podAntiAffinity": {}}}
    assert olm.apply_config(pod, config, behaviour="documented") == {"affinity": {"nodeAffinity": NODE}}
    assert olm.exception_applies(pod, config)
    assert not olm.exception_applies({"affinity": {"podAntiAffinity": POD}}, config), "nothing else is lost"


@pytest.mark.req("MF-082")
@pytest.mark.parametrize(
    ("own", "override", "expected"),
    [
        ({"a": "1"}, ABSENT, {"a": "1"}),
        ({"a": "1"}, None, {"a": "1"}),
        ({"a": "1"}, {}, {}),
        ({"a": "1"}, {"b": "2"}, {"b": "2"}),
        (ABSENT, {"b": "2"}, {"b": "2"}),
        (ABSENT, ABSENT, ABSENT),
    ],
)
def test_MF_082_a_node_selector_is_replaced_wholly(own: Any, override: Any, expected: Any) -> None:
    pod = {} if own is ABSENT else {"nodeSelector": own}
    result = olm.apply_config(pod, {} if override is ABSENT else {"nodeSelector": override})
    assert result.get("nodeSelector", ABSENT) == expected


@pytest.mark.req("MF-082")
def test_MF_082_tolerations_are_appended_unless_the_pod_had_them() -> None:
    one, two, three = {"key": "a"}, {"key": "b", "operator": "Exists"}, {"key": "c"}
    pod = {"tolerations": [one, two]}
    result = olm.apply_config(pod, {"tolerations": [three, {**two, "value": None}, three]})
    assert result["tolerations"] == [one, two, three, three], "null counts as absent, repetitions are kept"
    assert pod == {"tolerations": [one, two]}
    assert olm.apply_config(pod, {"tolerations": None}) == pod
    assert "tolerations" not in olm.apply_config({}, {"tolerations": []})


@pytest.mark.req("MF-082")
@pytest.mark.parametrize(
    ("config", "member"),
    [
        ({"affinity": []}, "affinity"),
        ({"affinity": {"nodeAffinity": "x"}}, "affinity.nodeAffinity"),
        ({"nodeSelector": ["a"]}, "nodeSelector"),
        ({"tolerations": {}}, "tolerations"),
        ({"tolerations": [{}, "x"]}, "tolerations[1]"),
    ],
)
def test_MF_082_a_wrong_type_is_an_error_that_names_the_member(config: Any, member: str) -> None:
    with pytest.raises(olm.InvalidConfig) as raised:
        olm.apply_config({}, config)
    assert raised.value.member == member
    assert member in str(raised.value)


@pytest.mark.req("MF-080")
def test_MF_080_where_the_config_stands() -> None:
    config = {"nodeSelector": {"a": "1"}}
    assert olm.config_of({"kind": "Subscription", "spec": {"config": config}}) == config
    extension = {"kind": "ClusterExtension", "spec": {"config": {"inline": {"deploymentConfig": config}}}}
    assert olm.config_of(extension) == config
    assert olm.config_of({"kind": "Subscription", "spec": {"name": "acme"}}) == {}
    with pytest.raises(olm.InvalidConfig, match=r"spec\.config is a string"):
        olm.config_of({"kind": "Subscription", "spec": {"config": "x"}})
    with pytest.raises(olm.InvalidConfig, match="Subscription or ClusterExtension"):
        olm.config_of({"kind": "Deployment"})
