"""Why builds fail, and what makes another attempt worth while. Pure.

After a failure nothing is tried again until what failed it has changed. What nodes and Secrets were at that time is
kept in the execution's record as its *witness*, so that a restart forgets nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from polyarch.builds.architectures import is_available
from polyarch.builds.base_images import builder_images, builder_lookups
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    BuildRequest,
    Execution,
    NodeFacts,
    own_executions,
)
from polyarch.builds.plan.actions import ExecutionProgress
from polyarch.builds.plan.executions import FAULTY_CHILD
from polyarch.builds.plan.request import DesiredBuild

FailureRelease = Literal["inputs", "spec", "builder", "token", "secret", "look-up", "push", "backoff", "node", "nodes"]
"""What releases a failed build, besides other inputs, which make another build of it."""

RELEASES: Final[Mapping[str, FailureRelease]] = {
    "BuildFailed": "inputs",
    "BuildTimeout": "inputs",
    "LayoutInvalid": "inputs",
    "ArchitectureMismatch": "inputs",
    "JobDeleted": "inputs",
    "JobRefused": "spec",
    "UserNamespaceUnavailable": "spec",
    "BuilderImageUnusable": "builder",
    "EmulatorMissing": "spec",
    "ProfileForbidden": "spec",
    "ContainerfileInvalid": "inputs",
    "InputMissing": "secret",
    "PushDenied": "secret",
    "PushTooLarge": "push",
    "QuotaExceeded": "push",
    "RepositoryMissing": "push",
    "TagImmutable": "spec",
    "BaseImageUnauthorized": "secret",
    "BaseImageNotFound": "look-up",
    "BaseImageUnusable": "look-up",
    "BaseImageArchitectureMissing": "look-up",
    "RegistryUnreachable": "backoff",
    "NoNodeForArchitecture": "node",
    "Unschedulable": "nodes",
    "RegistryInconsistent": "token",
    "MixedFormats": "token",
    "DuplicatePlatform": "token",
}
_CURES: Final[Mapping[FailureRelease, str]] = {
    "inputs": "a change of its inputs or a new spec.rebuild.token",
    "spec": "a change of the spec or a new spec.rebuild.token",
    "builder": "another builder image, also behind the same name (looked up every 10 minutes), another change of the "
    "spec or a new spec.rebuild.token",
    "token": "a new spec.rebuild.token",
    "secret": "a change of a Secret that it uses, or a new spec.rebuild.token",
    "look-up": "another answer of the registry, looked up every 10 minutes",
    "push": "the registry taking it, tried again every 10 minutes",
    "backoff": "the registry being reachable again",
    "node": "a Ready, schedulable linux/{architecture} node",
    "nodes": "any change of the linux/{architecture} nodes",
}
LOOK_UP_INTERVAL: Final = 600.0
SECRET_INTERVAL: Final = 60.0
"""Secrets are not watched, so a held build looks at those it uses this often."""
SHORTEST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 1800.0
"""Registries that cannot be reached are tried again after 1, 2, 4 … 30 minutes."""


class FailureCause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an execution failed; without an architecture it concerns all of them."""

    reason: str
    message: str
    architecture: str = ""
    host: str = ""

    @property
    def release(self) -> FailureRelease:
        return RELEASES.get(self.reason, "inputs")

    @property
    def text(self) -> str:
        """``arm64: BuildFailed: RUN make: exit 2``."""
        return ": ".join(part for part in (self.architecture, self.reason, self.message) if part)


class FailureHold(msgspec.Struct, frozen=True, kw_only=True):
    """A failed execution that nothing has released yet (``Held``)."""

    execution: str
    causes: tuple[FailureCause, ...]
    message: str
    requeue_after: float | None = None
    lookups: tuple[BuildLookup, ...] = ()


def causes_of(execution: Execution | ExecutionProgress) -> tuple[FailureCause, ...]:
    """Why an execution has not made everything that it was to make; empty if it has."""
    found = [
        FailureCause(reason=child.reason, message=child.message, architecture=child.architecture, host=child.host)
        for child in sorted(execution.children, key=lambda each: each.architecture)
        if child.phase in FAULTY_CHILD
    ]
    if not found and execution.phase in ("Failed", "Interrupted"):
        found.append(FailureCause(reason=execution.reason, message=execution.message))
    return tuple(found)


def explained(causes: Iterable[FailureCause], request: BuildRequest) -> str:
    """Why a build is held, and what releases it, for people."""
    known = tuple(causes)
    cures = dict.fromkeys(_CURES[each.release].format(architecture=each.host or each.architecture) for each in known)
    told = f"{'; '.join(each.text for each in known)}. What releases it: {'; or '.join(cures)}."
    return request.worded(told)


def failure_hold(facts: BuildFacts, target: DesiredBuild) -> FailureHold | None:
    """The hold that the newest execution of this build has on it; None: there is none, or it has been released."""
    same = [each for each in own_executions(facts) if each.build_key == target.build_key and not each.deleting]
    if not same or same[-1].phase not in ("Failed", "Interrupted", "Succeeded"):
        return None
    newest = same[-1]
    causes = causes_of(newest)
    if not causes:
        return None
    asks_builder = any(cause.release == "builder" for cause in causes)
    if lookups := (*unread_secrets(facts, causes), *(builder_lookups(facts) if asks_builder else ())):
        return FailureHold(execution=newest.name, causes=causes, message="", lookups=lookups)
    ended = newest.completed if newest.completed is not None else newest.created
    pauses: list[float] = []
    for cause in causes:
        pause = _pause(_release(cause, facts), same)
        if pause is not None:
            pauses.append(ended + pause - facts.now)
            if pauses[-1] <= 0:
                return None
        elif _released(cause, newest, facts):
            return None
    if any(_release(cause, facts) == "secret" for cause in causes):
        pauses.append(SECRET_INTERVAL)
    if asks_builder and not facts.leaves_registries_to_jobs:
        pauses.append(LOOK_UP_INTERVAL)
    return FailureHold(
        execution=newest.name,
        causes=causes,
        message=explained(causes, facts.request),
        requeue_after=min(pauses, default=None),
    )


def backoff(failed: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(SHORTEST_PAUSE * 2.0 ** max(0, failed - 1), LONGEST_PAUSE)


def pause_since(first: float, now: float) -> float:
    """Seconds until the next attempt of something that fails since ``first``, tried after 1, 2, 4 … 30 minutes."""
    due, attempt = first, 0
    while due <= now:
        attempt += 1
        due += backoff(attempt)
    return due - now


def witness(facts: BuildFacts, causes: Iterable[FailureCause]) -> dict[str, str]:
    """What has to change to release these causes, as it is now."""
    found = {"generation": str(facts.request.generation)}
    for cause in causes:
        if cause.release == "nodes":
            architecture = cause.host or cause.architecture
            found[f"nodes/{architecture}"] = nodes_fingerprint(facts.nodes or (), architecture)
        elif cause.release == "secret":
            found["secrets"] = secrets_fingerprint(facts)
    return found


def nodes_fingerprint(nodes: Iterable[NodeFacts], architecture: str) -> str:
    """Changes with any change of this architecture's nodes that a scheduler may care about."""
    texts = sorted(
        repr((each.name, each.ready, each.schedulable, sorted(each.taints), sorted(each.labels.items()), each.deleting))
        for each in nodes
        if each.architecture == architecture
    )
    return _hash(texts)


def secrets_fingerprint(facts: BuildFacts) -> str:
    """Changes with the resourceVersion of any Secret that the build uses."""
    versions = (
        f"{name}={secret.resource_version if secret is not None else ''}"
        for name, secret in facts.inputs.secrets.items()
    )
    return _hash(sorted(versions))


def unread_secrets(facts: BuildFacts, causes: Iterable[FailureCause]) -> tuple[BuildLookup, ...]:
    """Secrets that have to be looked at before it can be said whether they have changed, or what they are now."""
    if not any(_release(cause, facts) == "secret" for cause in causes):
        return ()
    spec = facts.request.spec
    git = spec.source.context.git
    used = [
        *(each.secret.name for each in spec.source.secrets or ()),
        *(each.name for each in spec.output.pull_secrets or ()),
        spec.output.push_secret.name if spec.output.push_secret is not None else "",
        git.credentials.name if git is not None and git.credentials is not None else "",
    ]
    unread = sorted({name for name in used if name} - facts.inputs.secrets.keys())
    return tuple(BuildLookup(reference=name, what="secret") for name in unread)


def _release(cause: FailureCause, facts: BuildFacts) -> FailureRelease:
    """Where credentials are not to be read, it is tried again instead."""
    return "look-up" if cause.release == "secret" and facts.leaves_registries_to_jobs else cause.release


def _pause(release: FailureRelease, same: list[Execution]) -> float | None:
    """Seconds after its end when an execution is tried again, where time alone releases it."""
    if release in ("look-up", "push"):
        return LOOK_UP_INTERVAL
    if release != "backoff":
        return None
    in_a_row = 0
    for execution in reversed(same):
        if not any(cause.release == "backoff" for cause in causes_of(execution)):
            break
        in_a_row += 1
    return backoff(in_a_row)


def _released(cause: FailureCause, execution: Execution, facts: BuildFacts) -> bool:
    known = recorded_witness(execution)
    architecture = cause.host or cause.architecture
    match cause.release:
        case "node":
            return is_available(facts, architecture)
        case "nodes":
            seen = known.get(f"nodes/{architecture}")
            return seen is not None and seen != nodes_fingerprint(facts.nodes or (), architecture)
        case "secret":
            seen = known.get("secrets")
            return seen is not None and seen != secrets_fingerprint(facts)
        case "spec":
            return _is_edited(known, facts)
        case "builder":
            return _is_edited(known, facts) or _has_other_builder(execution, facts)
        case _:
            return False


def _is_edited(known: Mapping[str, str], facts: BuildFacts) -> bool:
    seen = known.get("generation")
    return seen is not None and seen != str(facts.request.generation)


def _has_other_builder(execution: Execution, facts: BuildFacts) -> bool:
    """Whether the next execution would have another builder image. A registry that does not say is no other one."""
    before, now = execution.builder, builder_images(facts)
    return before.image != now.image or (now.digest not in ("", before.digest))


def recorded_witness(execution: Execution) -> dict[str, str]:
    """The witness in an execution's record; empty if there is none."""
    try:
        record = msgspec.json.decode(execution.recorded or "{}", type=_Record)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return record.witness


class _Record(msgspec.Struct):
    witness: dict[str, str] = {}


def _hash(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
