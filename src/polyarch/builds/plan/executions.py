"""Executions as they are recorded, and what can be used again of them: results, children, Jobs. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.builds import names
from polyarch.builds.base_images import builder_images
from polyarch.builds.facts.build_facts import (
    ENDED,
    ENDED_CHILD,
    USABLE,
    BuildFacts,
    BuildLookup,
    ChildRecord,
    Execution,
    JobFacts,
    Problem,
    own_executions,
)
from polyarch.builds.jobs.results import told_missing
from polyarch.builds.jobs.spec import pod_settings
from polyarch.builds.plan.request import DesiredBuild, forced_alike
from polyarch.oci.inspection import ERROR_CODES

FAULTY_CHILD = frozenset({"Failed", "Interrupted"})


class ExecutionNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of an execution and of everything that it makes."""

    execution: str
    record: str
    """The ConfigMap with its architectures."""
    index_job: str
    tags: tuple[str, ...]
    """What the result is tagged with, the execution's own tag first."""
    jobs: Mapping[str, str]
    """By architecture."""
    child_tags: Mapping[str, str]
    """By architecture; empty where a child has no tag."""


def usable(child: ChildRecord) -> bool:
    """Whether this record names an image that may be published."""
    return bool(child.digest) and child.phase in USABLE


def recorded_child(execution: Execution, architecture: str) -> ChildRecord | None:
    """What an execution recorded of an architecture."""
    return next((each for each in execution.children if each.architecture == architecture), None)


def key_of(execution: Execution, architecture: str) -> str:
    """The key that an execution wants, or wanted, for an architecture; empty if it is none of its own."""
    for each in execution.keys:
        if each.architecture == architecture:
            return each.key
    child = recorded_child(execution, architecture)
    return child.key if child is not None else ""


# -- finished executions, and those under way --------------------------------------------------------------------------


def published_result(execution: Execution) -> tuple[str, ...]:
    """The architectures that the result of an execution has, in order."""
    return tuple(sorted(each.architecture for each in execution.children if usable(each)))


def covers(execution: Execution, target: DesiredBuild, needed: Iterable[str]) -> bool:
    """Whether a finished result is what is wanted: a result of more architectures than needed is, too."""
    if execution.phase != "Succeeded" or not execution.result or execution.deleting:
        return False
    return _fits(execution, target, needed, published_result(execution))


def makes(execution: Execution, target: DesiredBuild, needed: Iterable[str]) -> bool:
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


def same_output(execution: Execution, target: DesiredBuild) -> bool:
    """Whether repository, format and index options are equal."""
    return (
        execution.repository == target.repository
        and execution.format == target.format
        and execution.index_mode == target.index_mode
        and dict(execution.index_annotations) == dict(target.index_annotations)
        and execution.attestations == target.attestations
    )


def covering(facts: BuildFacts, target: DesiredBuild, needed: Sequence[str]) -> tuple[Execution, ...]:
    """The build's own finished executions that cover, the latest first."""
    found = [each for each in own_executions(facts) if covers(each, target, needed)]
    return tuple(sorted(found, key=lambda each: (-(each.completed or 0.0), each.name)))


def ended_by_itself(facts: BuildFacts) -> tuple[Execution, ...]:
    """The build's own executions that came to their end, the last one last; those that were superseded did not."""
    found = [each for each in own_executions(facts) if each.phase in ENDED and each.phase != "Superseded"]
    return tuple(sorted(found, key=lambda each: (each.completed or 0.0, each.created, each.serial, each.name)))


def _begun(execution: Execution, architecture: str) -> bool:
    child = recorded_child(execution, architecture)
    return child is not None and child.phase != "Pending"


def _fits(execution: Execution, target: DesiredBuild, needed: Iterable[str], there: Sequence[str]) -> bool:
    wanted = set(needed)
    return (
        bool(wanted)
        and wanted <= set(there)
        and all(key_of(execution, each) == target.keys[each] for each in wanted)
        and same_output(execution, target)
        and not any(target.forbids(each) for each in there)
    )


# -- children ----------------------------------------------------------------------------------------------------------


UNUSABLE: Final[Mapping[str, str]] = {
    "unknown-host": "there is no such host; check its spelling",
    "refused-address": "its address is one that the builder does not connect to; the administrator can allow it",
    "tls": "its certificate is not trusted; the administrator can name the CA, or that the host is insecure",
}
"""Errors of a registry that building takes away from nobody."""
PASSING = frozenset({"transient", "limit"})
"""Classes of errors that say nothing about the image."""


class ReusableChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child that is there: where it is and which execution recorded it."""

    child: ChildRecord
    execution: str
    repository: str

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.child.digest}"


class ReuseSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What came of looking for a child: it, questions first, a registry that does not answer, or nothing."""

    found: ReusableChild | None = None
    lookups: tuple[BuildLookup, ...] = ()
    unreachable: str = ""
    """The reference that could not be looked up, and why: the repository that is pushed to does not answer."""
    refused: str = ""
    """A child that would do, which its registry does not show, and why."""


def existence(facts: BuildFacts, reference: str) -> Literal["there", "gone", "unknown"] | BuildLookup:
    """What a registry said about ``repository@digest``, or what it has to be asked.

    Where registries are left to Jobs, what is recorded is trusted until an index Job did not find it.
    """
    if facts.leaves_registries_to_jobs:
        return "gone" if reference in _told_gone(facts) else "there"
    known = facts.existing.get(reference)
    if known is None:
        return BuildLookup(reference=reference, what="head")
    if known.error:
        return "unknown" if ERROR_CODES.get(known.error) in PASSING else "gone"
    return "there" if known.digest else "gone"


def find_reusable_child(
    facts: BuildFacts, target: DesiredBuild, architecture: str, *, elsewhere: bool = True
) -> ReuseSearch:
    """The best child for an architecture: same repository first, then the latest, then by name.

    ``elsewhere``: children of other repositories are considered; they have to be copied. After one that is gone the
    next are asked for together, as many as are gone already: where a registry has lost everything, a build with
    hundreds of kept executions has its answer after a few lookups. Another repository is not waited for: whoever has
    moved away from a registry that is gone does not need it.
    """
    gone, lookups, refused = 0, list[BuildLookup](), ""
    for candidate in candidates(facts, target, architecture):
        if not elsewhere and candidate.repository != target.repository:
            continue
        state = existence(facts, candidate.reference)
        if isinstance(state, BuildLookup):
            lookups.append(state)
            if len(lookups) >= gone:
                break
        elif lookups:
            break
        elif state == "there":
            return ReuseSearch(found=candidate)
        else:
            known = facts.existing.get(candidate.reference)
            error = known.error if known is not None else ""
            told = f"{candidate.reference} could not be looked up ({error})"
            if state == "unknown" and candidate.repository in (target.repository, target.staging):
                return ReuseSearch(unreachable=told)
            refused = refused or (told if error and ERROR_CODES.get(error) != "absent" else "")
            gone += 1
    return ReuseSearch(lookups=tuple(lookups), refused=refused)


def candidates(facts: BuildFacts, target: DesiredBuild, architecture: str) -> tuple[ReusableChild, ...]:
    """Every recorded child with the wanted key, the best first, each place once."""
    key = target.keys[architecture]
    found: dict[str, ReusableChild] = {}
    for execution in sorted(facts.executions, key=lambda each: (-_finished(each, architecture), each.name)):
        if execution.namespace != target.namespace or not _counts(execution, target, architecture):
            continue
        for child in execution.children:
            if child.architecture == architecture and child.digest and usable(child) and _key(execution, child) == key:
                for repository in _places(execution, child, target):
                    reusable = ReusableChild(child=child, execution=execution.name, repository=repository)
                    found.setdefault(reusable.reference, reusable)
    return tuple(sorted(found.values(), key=lambda each: each.repository != target.repository))


def destination(facts: BuildFacts, target: DesiredBuild) -> BuildLookup | Problem | None:
    """Whether there can be a registry where Jobs are to push, asked before the first one of a build is made.

    Else hours of building end in a host that does not exist. What is not allowed there says the push itself.
    """
    place = target.pushed_to
    pushed = any(child.digest for each in facts.executions if each.repository == place for child in each.children)
    if pushed or facts.leaves_registries_to_jobs:
        return None
    known = facts.existing.get(reference := f"{place}:latest")
    if known is None:
        return BuildLookup(reference=reference, what="head")
    if known.error not in UNUSABLE:
        return None
    field = "stagingRepository" if target.staging else "repository"
    message = f"Nothing can be pushed to {place}, which spec.output.{field} names: {UNUSABLE[known.error]}."
    return Problem(reason="RegistryUnreachable", message=message)


def _told_gone(facts: BuildFacts) -> set[str]:
    """Images that index Jobs did not find, and the results that have them."""
    gone = set()
    for execution in facts.executions:
        if missing := told_missing(facts.jobs, execution.name):
            digests = (each.digest for each in execution.children if each.architecture in missing)
            gone |= {execution.result, *(f"{execution.repository}@{each}" for each in digests)}
    return gone


def _key(execution: Execution, child: ChildRecord) -> str:
    return child.key or key_of(execution, child.architecture)


def _counts(execution: Execution, target: DesiredBuild, architecture: str) -> bool:
    """Whether an execution counts: for a forced architecture only one with the same token does."""
    if not target.forces(architecture):
        return True
    built = any(each.architecture == architecture and each.phase == "Built" for each in execution.children)
    if not built or execution.owner_uid != target.owner_uid or execution.forced is None:
        return False
    return forced_alike(execution.forced, target.forced, architecture)


def _places(execution: Execution, child: ChildRecord, target: DesiredBuild) -> Iterable[str]:
    """Where the child is: in the staging repository only, if the execution ended before it was copied."""
    places = [execution.repository]
    if target.staging and execution.phase != "Succeeded":
        places.append(target.staging)
    return dict.fromkeys(places)


def _finished(execution: Execution, architecture: str) -> float:
    child = recorded_child(execution, architecture)
    completed = child.completed if child is not None and child.completed is not None else execution.completed
    return completed or 0.0


# -- Jobs --------------------------------------------------------------------------------------------------------------


def live(job: JobFacts) -> bool:
    """Whether a Job is still at work."""
    return job.complete is None and job.failure is None and not job.deleting


def adoptable(job: JobFacts, execution: Execution) -> bool:
    """Whether a Job's outcome is still to be had: it works, or it is done and its child was not recorded."""
    if job.failure is not None or job.deleting:
        return False
    record = recorded_child(execution, job.architecture)
    return job.complete is None or record is None or record.phase not in ENDED_CHILD


def same_work(job: JobFacts, target: DesiredBuild, architecture: str) -> bool:
    """Whether a Job makes the wanted child at the wanted place."""
    return (
        job.namespace == target.namespace
        and job.role == names.ARCH_ROLE
        and job.architecture == architecture
        and job.key == target.keys[architecture]
        and (not job.repository or job.repository == target.pushed_to)
    )


def adoption(facts: BuildFacts, target: DesiredBuild, architecture: str, *, execution: str) -> JobFacts | None:
    """The Job that ``execution`` takes over: one that does the wanted work for another execution of the same build."""
    others = {each.name: each for each in own_executions(facts) if each.name != execution}
    found = [
        job
        for job in facts.jobs
        if job.run in others
        and same_work(job, target, architecture)
        and adoptable(job, others[job.run])
        and _forced_alike(others[job.run], target, architecture)
    ]
    return min(found, key=lambda job: (job.created, job.name), default=None)


def shared(facts: BuildFacts, target: DesiredBuild, architecture: str, *, execution: str) -> JobFacts | None:
    """A live Job of somebody else's execution that does the wanted work: it is waited for, and its child reused."""
    found = [job for job in facts.jobs if same_work(job, target, architecture) and live(job) and job.run != execution]
    return min(found, key=lambda job: (job.created, job.name), default=None)


def own_job(facts: BuildFacts, execution: Execution, architecture: str) -> JobFacts | None:
    """The Job of an execution for an architecture: the recorded one, else the one labelled or named so."""
    record = next((each for each in execution.children if each.architecture == architecture), None)
    jobs = [job for job in facts.jobs if job.namespace == execution.namespace and job.role == names.ARCH_ROLE]
    if record is not None and record.job_uid:
        return next((job for job in jobs if job.uid == record.job_uid), None)
    own = [job for job in jobs if job.run == execution.name and job.architecture == architecture]
    return min(own, key=lambda job: (job.deleting, job.created, job.name), default=None)


SETTINGS_KEPT: Final = "SettingsKept"
"""Reason of what tells that Jobs at work do not have what the spec says now."""


def kept_settings(facts: BuildFacts, execution: Execution) -> Problem | None:
    """What of the spec has changed and does not reach an execution under way: no input, so it is not superseded.

    The pods of its Jobs are what they were made as, and all its Jobs have the images that it began with.
    """
    spec, changed = facts.request.spec, dict[str, set[str]]()
    for job in facts.jobs:
        if job.run == execution.name and job.role == names.ARCH_ROLE and live(job):
            now = pod_settings(spec, job.architecture)
            for field, value in job.settings.items():
                if now.get(field, value) != value:
                    changed.setdefault(field, set()).add(job.architecture)
    parts = [f"{field} ({', '.join(sorted(changed[field]))})" for field in sorted(changed)]
    own, named = execution.builder, builder_images(facts)
    images = (("image", own.image, named.image), ("pushImage", own.push_image, named.push_image))
    parts += [f"spec.builder.{field}" for field, before, now in images if before and before != now]
    if not parts:
        return None
    message = (
        f"{execution.name} goes on as its Jobs were made, before the change of {', '.join(parts)}. The next run has "
        "it; a new spec.rebuild.token makes that now."
    )
    return Problem(reason=SETTINGS_KEPT, message=message, severity="Warning")


def _forced_alike(execution: Execution, target: DesiredBuild, architecture: str) -> bool:
    """A forced architecture takes over only Jobs that were made for the same token."""
    if not target.forces(architecture):
        return True
    return execution.forced is not None and forced_alike(execution.forced, target.forced, architecture)
