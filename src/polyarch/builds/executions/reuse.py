"""Children that executions recorded, and that may be used again by key and digest (BD-092, BD-335).

Executions of any outcome count: a failed one keeps its good children. A child is used only after the registry said that
it is there; where registries are for Jobs only, what is recorded is trusted (BD-178). Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from polyarch.builds.executions.state import key_of, recorded_child, usable
from polyarch.builds.executions.target import Target, forced_alike
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts, Question
from polyarch.builds.facts.problem import Problem
from polyarch.builds.jobs.index_outcome import told_missing
from polyarch.oci.answer import ERROR_CODES

UNUSABLE: Final[Mapping[str, str]] = {
    "unknown-host": "there is no such host; check its spelling",
    "refused-address": "its address is one that the builder does not connect to; the administrator can allow it",
    "tls": "its certificate is not trusted; the administrator can name the CA, or that the host is insecure",
}
"""Errors of a registry that building takes away from nobody."""
PASSING = frozenset({"transient", "limit"})
"""Classes of errors that say nothing about the image."""


class Reusable(msgspec.Struct, frozen=True, kw_only=True):
    """A child that is there: where it is and which execution recorded it."""

    child: ChildRecord
    execution: str
    repository: str

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.child.digest}"


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What came of looking for a child: it, questions first, a registry that does not answer, or nothing."""

    found: Reusable | None = None
    questions: tuple[Question, ...] = ()
    unreachable: str = ""
    """The reference that could not be looked up, and why."""


def existence(facts: Facts, reference: str) -> Literal["there", "gone", "unknown"] | Question:
    """What a registry said about ``repository@digest``, or what it has to be asked.

    Where registries are left to Jobs, what is recorded is trusted until an index Job did not find it (BD-178).
    """
    if facts.leaves_registries_to_jobs:
        return "gone" if reference in _told_gone(facts) else "there"
    known = facts.existing.get(reference)
    if known is None:
        return Question(reference=reference, what="head")
    if known.error:
        return "unknown" if ERROR_CODES.get(known.error) in PASSING else "gone"
    return "there" if known.digest else "gone"


def search(facts: Facts, target: Target, architecture: str, *, elsewhere: bool = True) -> Search:
    """The best child for an architecture: same repository first, then the latest, then by name (BD-092).

    ``elsewhere``: children of other repositories are considered; they have to be copied. After one that is gone the
    next are asked for together, as many as are gone already: where a registry has lost everything, a build with
    hundreds of kept executions has its answer after a few rounds.
    """
    gone, questions = 0, list[Question]()
    for candidate in candidates(facts, target, architecture):
        if not elsewhere and candidate.repository != target.repository:
            continue
        state = existence(facts, candidate.reference)
        if isinstance(state, Question):
            questions.append(state)
            if len(questions) >= gone:
                break
        elif questions:
            break
        elif state == "there":
            return Search(found=candidate)
        elif state == "unknown":
            error = facts.existing[candidate.reference].error
            return Search(unreachable=f"{candidate.reference} could not be looked up ({error})")
        else:
            gone += 1
    return Search(questions=tuple(questions))


def candidates(facts: Facts, target: Target, architecture: str) -> tuple[Reusable, ...]:
    """Every recorded child with the wanted key, the best first, each place once."""
    key = target.keys[architecture]
    found: dict[str, Reusable] = {}
    for execution in sorted(facts.executions, key=lambda each: (-_finished(each, architecture), each.name)):
        if execution.namespace != target.namespace or not _counts(execution, target, architecture):
            continue
        for child in execution.children:
            if child.architecture == architecture and child.digest and usable(child) and _key(execution, child) == key:
                for repository in _places(execution, child, target):
                    reusable = Reusable(child=child, execution=execution.name, repository=repository)
                    found.setdefault(reusable.reference, reusable)
    return tuple(sorted(found.values(), key=lambda each: each.repository != target.repository))


def destination(facts: Facts, target: Target) -> Question | Problem | None:
    """Whether there can be a registry where Jobs are to push, asked before the first one of a build is made.

    Else hours of building end in a host that does not exist. What is not allowed there says the push itself.
    """
    place = target.pushed_to
    pushed = any(child.digest for each in facts.executions if each.repository == place for child in each.children)
    if pushed or facts.leaves_registries_to_jobs:
        return None
    known = facts.existing.get(reference := f"{place}:latest")
    if known is None:
        return Question(reference=reference, what="head")
    if known.error not in UNUSABLE:
        return None
    field = "stagingRepository" if target.staging else "repository"
    message = f"Nothing can be pushed to {place}, which spec.output.{field} names: {UNUSABLE[known.error]}."
    return Problem(reason="RegistryUnreachable", message=message)


def _told_gone(facts: Facts) -> set[str]:
    """Images that index Jobs did not find, and the results that have them."""
    gone = set()
    for execution in facts.executions:
        if missing := told_missing(facts.jobs, execution.name):
            digests = (each.digest for each in execution.children if each.architecture in missing)
            gone |= {execution.result, *(f"{execution.repository}@{each}" for each in digests)}
    return gone


def _key(execution: Execution, child: ChildRecord) -> str:
    return child.key or key_of(execution, child.architecture)


def _counts(execution: Execution, target: Target, architecture: str) -> bool:
    """Of a forced architecture only what was built for the same token counts (BD-136)."""
    if not target.forces(architecture):
        return True
    built = any(each.architecture == architecture and each.phase == "Built" for each in execution.children)
    if not built or execution.owner_uid != target.owner_uid or execution.forced is None:
        return False
    return forced_alike(execution.forced, target.forced, architecture)


def _places(execution: Execution, child: ChildRecord, target: Target) -> Iterable[str]:
    """Where the child is: in the staging repository only, if the execution ended before it was copied."""
    places = [execution.repository]
    if target.staging and execution.phase != "Succeeded":
        places.append(target.staging)
    return dict.fromkeys(places)


def _finished(execution: Execution, architecture: str) -> float:
    child = recorded_child(execution, architecture)
    completed = child.completed if child is not None and child.completed is not None else execution.completed
    return completed or 0.0
