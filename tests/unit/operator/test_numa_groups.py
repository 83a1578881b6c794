"""Which nodes an entry of ``nodeGroups`` means, and how whoever wrote it learns what is wrong."""

import hashlib

import pytest
from numa_cluster import (
    POOL_LABEL,
    PREFIX,
    Json,
    condition,
    degraded,
    found,
    names,
    nodes,
    operator,
    planned,
    pool,
    settled,
)

from polyarch.operator.components.numa_facts import NodeLabels
from polyarch.operator.components.numa_node_groups import unnamed

INVALID = "ValidationErrorUnderNodeGroups"
WORKERS = {"poolName": "worker"}
ZONE_A = {"nodeSelector": {"matchLabels": {"zone": "a"}}}


def pool_selector(**labels: str) -> Json:
    return {"machineConfigPoolSelector": {"matchLabels": labels}}


class TestKubernetes:
    """Nodes by role or by labels."""

    @pytest.mark.req("NO-033")
    def test_a_pool_is_a_role(self) -> None:
        """Manifests that name ``worker`` work unchanged; the label's value does not matter."""
        made = planned(
            WORKERS,
            nodes=(
                NodeLabels("a", {"node-role.kubernetes.io/worker": ""}),
                NodeLabels("b", {"node-role.kubernetes.io/worker": "true"}),
                NodeLabels("c", {"node-role.kubernetes.io/control-plane": ""}),
            ),
        )
        assert made.group_nodes == {"worker": ("a", "b")}

    @pytest.mark.req("NO-034")
    def test_one_label_of_a_pool_is_a_role(self) -> None:
        made = planned({"machineConfigPoolSelector": {"matchLabels": {f"{POOL_LABEL}worker": ""}}})
        assert made.group_nodes == {"worker": ("n1", "n2", "n3")}

    @pytest.mark.req("NO-034")
    @pytest.mark.parametrize(
        "selector",
        [
            {"matchLabels": {"custom": "pool"}},
            {"matchLabels": {f"{POOL_LABEL}worker": "", "a": "b"}},
            {"matchLabels": {f"{POOL_LABEL}worker": ""}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
            {"matchLabels": {POOL_LABEL: ""}},
            {},
        ],
        ids=["another label", "two labels", "expressions", "no role", "empty"],
    )
    def test_other_selectors_of_pools_are_refused(self, selector: Json) -> None:
        reason, message = degraded(planned({"machineConfigPoolSelector": selector}))
        assert (reason, message) == (INVALID, "nodeGroups[0]: no MachineConfigPools here: use nodeSelector")

    @pytest.mark.req("NO-035")
    def test_nodes_by_labels(self) -> None:
        """The name is given, or made of the selector."""
        cluster = (*nodes("a1", "a2", zone="a"), *nodes("b1", zone="b"))
        text = b'{"matchLabels":{"zone":"a"}}'
        name = f"ng-{hashlib.sha256(text).hexdigest()[:8]}"
        made = planned({"poolName": "left", **ZONE_A}, nodes=cluster)
        assert made.group_nodes == {"left": ("a1", "a2")}
        assert planned(ZONE_A, nodes=cluster).group_nodes == {name: ("a1", "a2")}

    @pytest.mark.req("NO-035")
    def test_an_empty_selector_is_every_node(self) -> None:
        made = planned({"poolName": "all", "nodeSelector": {}}, nodes=(NodeLabels("bare"), *nodes("n1")))
        assert made.group_nodes == {"all": ("bare", "n1")}

    @pytest.mark.req("NO-035")
    def test_the_order_of_a_selector_does_not_change_the_name(self) -> None:
        """Two ways to write one selector are one group."""
        expressions = [{"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "Exists"}]
        turned = [
            {"operator": "Exists", "key": "b", "values": []},
            {"key": "a", "operator": "In", "values": ["y", "x"]},
        ]
        assert unnamed({"matchExpressions": expressions}) == unnamed({"matchExpressions": turned, "matchLabels": {}})

    @pytest.mark.req("NO-039")
    def test_a_group_without_nodes_is_no_error(self) -> None:
        made = settled(ZONE_A)
        assert condition(made, "Available")[0] == "True"
        assert "0 nodes" in condition(made, "Available")[2]


class TestOpenShift:
    """Nodes by MachineConfigPool."""

    def facts(self, *pools: Json) -> Json:
        return {"platform": "openshift", "pools": pools, "nodes": nodes("n1", "n2")}

    @pytest.mark.req("NO-031")
    @pytest.mark.parametrize(
        "entry",
        [WORKERS, {"machineConfigPoolSelector": {"matchLabels": {f"{POOL_LABEL}worker": ""}}}],
        ids=["name", "labels"],
    )
    def test_the_nodes_are_those_of_the_pool(self, entry: Json) -> None:
        made = planned(entry, **self.facts(pool("worker"), pool("master")))
        assert made.group_nodes == {"worker": ("n1", "n2")}

    @pytest.mark.req("NO-031")
    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"poolName": "cnf"}, "nodeGroups[0] (cnf): there is no MachineConfigPool cnf; there are master, worker"),
            (pool_selector(a="b"), "nodeGroups[0]: machineConfigPoolSelector matches no MachineConfigPool"),
        ],
    )
    def test_no_pool_found(self, entry: Json, said: str) -> None:
        assert degraded(planned(entry, **self.facts(pool("worker"), pool("master")))) == (INVALID, said)

    @pytest.mark.req("NO-031")
    def test_nodes_of_a_custom_pool_are_no_workers_where_both_are_groups(self) -> None:
        """They have both labels, and are the custom pool's, says the machine-config operator. Nobody may change
        the selector of the pool of workers, so there would be no way out of an overlap."""
        role = "node-role.kubernetes.io/"
        cluster = (
            NodeLabels("plain", {f"{role}worker": ""}),
            NodeLabels("cnf", {f"{role}worker": "", f"{role}worker-cnf": ""}),
        )
        pools = (pool("worker"), pool("worker-cnf"), pool("master"))
        facts = {"platform": "openshift", "pools": pools, "nodes": cluster}
        made = settled(WORKERS, {"poolName": "worker-cnf"}, **facts)
        assert made.group_nodes == {"worker": ("plain",), "worker-cnf": ("cnf",)}
        assert condition(made, "Available")[0] == "True"
        spec = found(made, "DaemonSet", "numaresourcesoperator-worker")["spec"]["template"]["spec"]
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert {"key": f"{role}worker-cnf", "operator": "NotIn", "values": [""]} in term["matchExpressions"]
        alone = planned(WORKERS, **facts)
        assert alone.group_nodes == {"worker": ("cnf", "plain")}, "as the predecessor does"

    @pytest.mark.req("NO-037")
    def test_several_pools_of_one_entry_are_applied_and_told(self) -> None:
        facts = self.facts(pool("left", kind="numa"), pool("right", kind="numa"))
        made = planned(pool_selector(kind="numa"), **facts)
        assert names(made, "DaemonSet") == ["numaresourcesoperator-left", "numaresourcesoperator-right"]
        reason, message = degraded(made)
        assert reason == INVALID
        assert "selects 2 MachineConfigPools (left, right)" in message

    @pytest.mark.req("NO-037", "NO-100")
    def test_unless_the_annotation_says_that_this_is_meant(self) -> None:
        key = "config.node.openshift-kni.io/multiple-pools-per-tree"
        facts = self.facts(pool("left", kind="numa"), pool("right", kind="numa"))
        entry = pool_selector(kind="numa")
        assert not planned(given=operator(entry, annotations={key: "enabled"}), **facts).is_degraded
        assert planned(given=operator(entry, annotations={key: "yes"}), **facts).is_degraded

    @pytest.mark.req("NO-036")
    def test_one_pool_of_two_entries(self) -> None:
        entries = (WORKERS, pool_selector(kind="numa"))
        reason, message = degraded(planned(*entries, **self.facts(pool("worker", kind="numa"))))
        assert reason == INVALID
        assert message == "nodeGroups[0] and nodeGroups[1] (worker): select the same MachineConfigPool"

    @pytest.mark.req("NO-035")
    @pytest.mark.parametrize("platform", ["openshift", "hypershift"])
    def test_node_selectors_are_for_plain_kubernetes(self, platform: str) -> None:
        made = planned({"poolName": "a", **ZONE_A}, platform=platform, pools=(pool("a"),))
        assert "nodeSelector is for plain Kubernetes" in degraded(made)[1]


class TestHyperShift:
    """Nodes by NodePool."""

    @pytest.mark.req("NO-032")
    def test_nodes_of_a_node_pool(self) -> None:
        cluster = tuple(
            NodeLabels(name, {"hypershift.openshift.io/nodePool": of}) for name, of in (("a", "blue"), ("b", "green"))
        )
        assert planned({"poolName": "blue"}, platform="hypershift", nodes=cluster).group_nodes == {"blue": ("a",)}

    @pytest.mark.req("NO-032")
    def test_a_selector_of_pools_is_refused(self) -> None:
        """With the group's index."""
        made = planned(WORKERS, pool_selector(a="b"), platform="hypershift")
        assert "nodeGroups[1]: machineConfigPoolSelector" in degraded(made)[1]


class TestValidation:
    """Everything that is wrong is told at once, with index and name."""

    @pytest.mark.req("NO-036")
    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({}, "nodeGroups[0]: needs poolName, nodeSelector or machineConfigPoolSelector"),
            ({**WORKERS, **pool_selector(a="b")}, "nodeGroups[0] (worker): has machineConfigPoolSelector and poolName"),
            ({**ZONE_A, **pool_selector(a="b")}, "nodeGroups[0]: has machineConfigPoolSelector and nodeSelector"),
            ({"poolName": ""}, "'' cannot be the name of a group"),
            ({"poolName": "Worker"}, "nodeGroups[0] (Worker): 'Worker' cannot be the name of a group"),
            ({"poolName": "a.b"}, "'a.b' cannot be the name of a group"),
            ({"poolName": "-a"}, "'-a' cannot be the name of a group"),
            ({"poolName": "a" * 64}, "cannot be the name of a group"),
            (
                {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
                "nodeSelector.matchExpressions[0].operator: 'Gt' is not a valid operator",
            ),
            ({"nodeSelector": {"matchLabels": {"a b": ""}}}, "nodeSelector.matchLabels[a b]: 'a b' is not a label"),
        ],
        ids=lambda each: each[:40] if isinstance(each, str) else None,
    )
    def test_what_is_refused(self, entry: Json, said: str) -> None:
        reason, message = degraded(planned(entry))
        assert reason == INVALID
        assert said in message

    @pytest.mark.req("NO-036")
    def test_all_violations_are_told_together(self) -> None:
        _, message = degraded(planned({"poolName": "Worker"}, {}, WORKERS, {"poolName": "worker"}))
        assert "nodeGroups[0] (Worker)" in message
        assert "nodeGroups[1]: needs" in message
        assert "nodeGroups[2] and nodeGroups[3] (worker): have the same name" in message

    @pytest.mark.req("NO-036")
    def test_one_selector_of_two_groups(self) -> None:
        _, message = degraded(planned({"poolName": "a", **ZONE_A}, {"poolName": "b", **ZONE_A}))
        assert "nodeGroups[0] (a) and nodeGroups[1] (b): have the same selector" in message

    @pytest.mark.req("NO-036")
    def test_nodes_of_two_groups_are_named(self) -> None:
        """The first five."""
        made = planned(WORKERS, ZONE_A, nodes=nodes(*(f"n{number}" for number in range(7)), zone="a"))
        _, message = degraded(made)
        assert "nodeGroups[0] (worker) and nodeGroups[1] (ng-" in message
        assert "both select 7 nodes: n0, n1, n2, n3, n4 and 2 more; a node belongs to one group" in message

    @pytest.mark.req("NO-038")
    @pytest.mark.parametrize("entries", [[{}], [WORKERS, WORKERS], [WORKERS, ZONE_A]], ids=["one", "names", "overlap"])
    def test_nothing_is_created_changed_or_deleted(self, entries: list[Json]) -> None:
        """What ran keeps running."""
        made = planned(*entries, nodes=nodes("n1", zone="a"))
        assert made.is_degraded
        assert (made.documents, made.namespace, made.certificate, made.status) == (None, None, None, None)


@pytest.mark.req("NO-101")
def test_unknown_annotations_of_a_group_are_told() -> None:
    """Ignored, with a warning."""
    known = {f"{PREFIX}kubelet-root": "/var/snap/kubelet", f"{PREFIX}heartbeat": "1m"}
    made = planned({**WORKERS, "annotations": {**known, "example.org/mine": "x"}})
    assert not made.is_degraded
    (told,) = made.events
    assert (told.type, told.reason) == ("Warning", "UnknownAnnotation")
    assert told.message == "node group worker has annotation example.org/mine, which means nothing here"
