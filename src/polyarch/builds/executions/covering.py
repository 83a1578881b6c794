"""Which executions already have, or are making, what is wanted (BD-091, BD-024). Pure."""

from collections.abc import Iterable, Sequence

from polyarch.builds.executions.state import key_of, recorded_child, usable
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Execution, Facts
from polyarch.builds.facts.history import ENDED, own_executions


def published(execution: Execution) -> tuple[str, ...]:
    """The architectures that the result of an execution has, in order."""
    return tuple(sorted(each.architecture for each in execution.children if usable(each)))


def covers(execution: Execution, target: Target, needed: Iterable[str]) -> bool:
    """Whether a finished result is what is wanted: a result of more architectures than needed is, too (BD-091)."""
    if execution.phase != "Succeeded" or not execution.result or execution.deleting:
        return False
    return _fits(execution, target, needed, published(execution))


def makes(execution: Execution, target: Target, needed: Iterable[str]) -> bool:
    """Whether an execution that runs will have what is wanted.

    One that has not begun an architecture whose inputs are not known any more cannot be carried on.
    """
    if execution.phase in ENDED or execution.deleting or execution.owner_uid != target.owner_uid:
        return False
    if any(
        each.architecture not in target.keys and not _begun(execution, each.architecture) for each in execution.keys
    ):
        return False
    return _fits(execution, target, needed, [each.architecture for each in execution.keys])


def same_output(execution: Execution, target: Target) -> bool:
    """Whether repository, format and index options are equal."""
    return (
        execution.repository == target.repository
        and execution.format == target.format
        and execution.index_mode == target.index_mode
        and dict(execution.index_annotations) == dict(target.index_annotations)
        and execution.attestations == target.attestations
    )


def covering(facts: Facts, target: Target, needed: Sequence[str]) -> tuple[Execution, ...]:
    """The wish's own finished executions that cover, the latest first."""
    found = [each for each in own_executions(facts) if covers(each, target, needed)]
    return tuple(sorted(found, key=lambda each: (-(each.completed or 0.0), each.name)))


def ended_by_itself(facts: Facts) -> tuple[Execution, ...]:
    """The wish's own executions that came to their end, the last one last; those that were superseded did not."""
    found = [each for each in own_executions(facts) if each.phase in ENDED and each.phase != "Superseded"]
    return tuple(sorted(found, key=lambda each: (each.completed or 0.0, each.created, each.serial, each.name)))


def _begun(execution: Execution, architecture: str) -> bool:
    child = recorded_child(execution, architecture)
    return child is not None and child.phase != "Pending"


def _fits(execution: Execution, target: Target, needed: Iterable[str], there: Sequence[str]) -> bool:
    wanted = set(needed)
    return (
        bool(wanted)
        and wanted <= set(there)
        and all(key_of(execution, each) == target.keys[each] for each in wanted)
        and same_output(execution, target)
        and not any(target.forbids(each) for each in there)
    )
