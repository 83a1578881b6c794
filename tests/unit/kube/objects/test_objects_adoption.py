"""PL-503: fields of former managers become ours, so that applying removes those that are no longer wanted."""

from typing import Any

import pytest

from polyarch.kube.client.jsonpatch import apply_patch
from polyarch.kube.objects.adoption import adoption


def entry(manager: str, *fields: str, operation: str = "Update", **more: Any) -> dict[str, Any]:
    """One of ``metadata.managedFields``: this manager has these fields of the spec."""
    own = {f"f:{field}": {} for field in fields}
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": own}, **more}


def live(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", "managedFields": list(entries)}}


def adopted(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    document = live(*entries)
    patch = adoption(document, manager="polyarch", others={"manager", "helper"})
    assert patch is not None
    found: list[dict[str, Any]] = apply_patch(document, patch.operations)["metadata"]["managedFields"]
    return found


def test_pl_503_what_a_former_manager_has_is_ours() -> None:
    (ours,) = adopted(entry("manager", "replicas", "paused"))
    assert ours == entry("polyarch", "replicas", "paused", operation="Apply")


def test_pl_503_fields_of_several_are_put_together() -> None:
    (ours,) = adopted(entry("manager", "replicas"), entry("helper", "paused"))
    assert ours["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:paused": {}}}


def test_pl_503_others_and_the_status_keep_theirs() -> None:
    person, status = entry("kubectl-edit", "paused"), entry("manager", "x", subresource="status")
    assert adopted(person, status, entry("manager", "replicas"))[:2] == [person, status]


def test_pl_503_what_we_have_applied_since_stays_as_it_is() -> None:
    ours = entry("polyarch", "replicas", operation="Apply")
    assert adopted(ours, entry("manager", "replicas", "paused")) == [ours]


@pytest.mark.parametrize(
    "entries",
    [(), (entry("kubectl-edit", "paused"),), (entry("manager", "x", subresource="status"),)],
    ids=["of nobody", "of a person", "of the status alone"],
)
def test_pl_503_without_fields_of_theirs_there_is_nothing_to_take_over(entries: tuple[dict[str, Any], ...]) -> None:
    assert adoption(live(*entries), manager="polyarch", others={"manager"}) is None


def test_pl_503_an_object_that_has_changed_meanwhile_is_not_taken_over() -> None:
    patch = adoption(live(entry("manager", "replicas")), manager="polyarch", others={"manager"})
    assert patch is not None
    changed = live(entry("manager", "replicas"))
    changed["metadata"]["resourceVersion"] = "8"
    with pytest.raises(ValueError, match="resourceVersion"):
        apply_patch(changed, patch.operations)
