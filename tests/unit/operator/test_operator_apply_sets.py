"""The operands of a component: what cannot be changed is made again, and nothing else."""

from typing import Any

import pytest
from fake_api import FakeApi
from fake_recorder import FakeRecorder
from manual_clock import ManualClock

from polyarch import names
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, DEPLOYMENTS
from polyarch.operator.apply_sets import OperandApplySets

HOME = "polyarch"


def binding(role: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": "web", "labels": {names.OPERAND_LABEL: "x"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }


@pytest.mark.req("PL-500")
@pytest.mark.parametrize(("role", "deleted"), [("one", False), ("other", True)])
async def test_objects_of_a_paged_list_are_compared_though_they_do_not_say_their_kind(role: str, deleted: bool) -> None:
    """Items of a LIST of a built-in kind have no ``kind``; those of a streaming list do, where there is one."""
    clock = ManualClock()
    api = FakeApi(clock)
    api.put(CLUSTER_ROLE_BINDINGS, binding("one"))
    kinds = [(CLUSTER_ROLE_BINDINGS, ""), (DEPLOYMENTS, HOME)]
    sets = OperandApplySets(
        api,
        api,
        kinds,
        namespace=HOME,
        part_of="x",
        clock=clock,
        recorder=FakeRecorder(),  # type: ignore[arg-type]
    )
    found = sets.get(CLUSTER_ROLE_BINDINGS, "web")
    assert found is not None
    for name in ("apiVersion", "kind"):
        found.document.pop(name, None)
    await sets._delete_if_unchangeable(binding(role))
    assert ("delete" in api.verbs(CLUSTER_ROLE_BINDINGS)) == deleted
