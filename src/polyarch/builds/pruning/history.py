"""Which executions of a build are kept (BD-230).

Kept are the current and the active one, the latest succeeded and the latest others, as many as the spec says, and
those whose images something runs; and the newest while it has not succeeded, since its record is what keeps a failed
build from starting over. A child that a kept execution holds too keeps no other one: else an architecture that
never changes would keep every execution for ever.

Pure: no asyncio, no clock.
"""

from collections.abc import Iterable

from polyarch.builds.facts.facts import Execution
from polyarch.builds.keys import handles
from polyarch.builds.pruning.counting import Claims, digests_of, own_tags, result_digest

TERMINAL = frozenset({"Succeeded", "Failed", "Interrupted", "Superseded"})


def expired(
    executions: Iterable[Execution],
    *,
    owner_uid: str,
    current: str,
    active: str,
    successful: int,
    failed: int,
    running: Claims,
) -> tuple[Execution, ...]:
    """The executions of this owner to delete, oldest first, those of equal age by name.

    ``running`` are the claims of pods, nodes and statuses alone.
    """
    own = [each for each in executions if each.owner_uid == owner_uid]
    ended = sorted((each for each in own if each.phase in TERMINAL), key=_age, reverse=True)
    good = [each for each in ended if each.phase == "Succeeded"]
    bad = [each for each in ended if each.phase != "Succeeded"]
    keep = {each.name for each in (*good[:successful], *bad[:failed])}
    keep |= {each.name for each in own if each.phase not in TERMINAL or each.name in (current, active)}
    newest = max(own, key=_age, default=None)
    if newest is not None:
        keep.add(newest.name)
    shared = {digest for each in own if each.name in keep for digest in digests_of(each)}
    for each in ended:
        if each.name not in keep and _is_used(each, running, shared):
            keep.add(each.name)
            shared |= digests_of(each)
    return tuple(sorted((each for each in own if each.name not in keep and not each.deleting), key=_age))


def _is_used(execution: Execution, running: Claims, shared: set[str]) -> bool:
    repository, result = handles.repository(execution.repository), result_digest(execution)
    if result and running.holds(repository, result):
        return True
    if running.names(repository, own_tags(execution)):
        return True
    return any(running.holds(repository, digest) for digest in digests_of(execution) - shared)


def _age(execution: Execution) -> tuple[float, str]:
    return (execution.created, execution.name)
