"""Kubectl's fields become ours, also while controllers write the status of the same object."""

from typing import Any

import pytest

from polyarch.installation.apply import take_over
from polyarch.kube.apply import READS
from polyarch.kube.errors import NO_FIT, Invalid, StatusCause
from polyarch.kube.resources import DEPLOYMENTS, ObjectRef
from polyarch.objects import ObjectKey, Unstructured

REF = ObjectRef(DEPLOYMENTS, ObjectKey("home", "polyarch-operator"))
CHANGED = Invalid(422, reason="Invalid", message=NO_FIT)


def deployment(version: int, manager: str = "kubectl") -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}
    return {"metadata": {"resourceVersion": str(version), "managedFields": [entry]}}


class Api:
    """Answers with each of these in turn; None: the patch is done."""

    def __init__(self, *answers: Invalid | None) -> None:
        self.answers = list(answers)
        self.version = 1
        self.tested: list[str] = []

    async def get(self, *_: Any, **__: Any) -> Unstructured:
        self.version += 1
        return Unstructured(deployment(self.version))

    async def patch(self, resource: Any, name: str, patch: Any, **__: Any) -> None:
        self.tested.append(patch.operations[0].value)
        if answer := self.answers.pop(0):
            raise answer


@pytest.mark.req("IN-004")
async def test_an_object_that_has_changed_meanwhile_is_read_again() -> None:
    api: Any = Api(CHANGED, CHANGED, None)
    await take_over(api, REF, deployment(1))
    assert api.tested == ["1", "2", "3"]


@pytest.mark.req("IN-004")
async def test_one_that_changes_all_the_time_is_an_error() -> None:
    api: Any = Api(*[CHANGED] * READS)
    with pytest.raises(Invalid):
        await take_over(api, REF, deployment(1))
    assert len(api.tested) == READS


@pytest.mark.req("IN-004")
async def test_a_patch_that_is_refused_for_another_reason_is_not_repeated() -> None:
    api: Any = Api(Invalid(422, reason="Invalid", message="bad", causes=(StatusCause(field="spec"),)))
    with pytest.raises(Invalid, match="bad"):
        await take_over(api, REF, deployment(1))
    assert api.tested == ["1"]


@pytest.mark.req("IN-004")
async def test_what_is_nobody_elses_is_not_patched() -> None:
    api: Any = Api()
    await take_over(api, REF, deployment(1, manager="polyarch"))
    assert api.tested == []
