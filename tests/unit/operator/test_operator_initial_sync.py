"""An operator says that it has looked at everything when it has, and not before."""

import pytest

from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.objects import ObjectKey
from polyarch.operator.reconciler import InitialSync

KEY = ObjectKey("", "cluster")


@pytest.mark.req("IN-002")
async def test_every_controller_has_to_have_had_its_pass() -> None:
    answers: list[Result | Exception] = [RequeueAfter(0.2), ValueError("no API server"), RequeueAfter(5.0)]

    async def slow(_: ObjectKey) -> Result:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def quick(_: ObjectKey) -> Result:
        return NoRequeue()

    first = InitialSync(("slow", "quick"))
    watched = first.of("slow", slow)
    assert await first.of("quick", quick)(KEY) == NoRequeue()
    assert not first.is_complete
    assert await watched(KEY) == RequeueAfter(0.2)
    with pytest.raises(ValueError, match="no API server"):
        await watched(KEY)
    assert not first.is_complete
    assert await watched(KEY) == RequeueAfter(5.0)
    assert first.is_complete
