"""The plan of one build, as ``build plan`` prints it and the reconciler carries it out.

Events, conditions and writes come from the same value. A plan with ``lookups`` has no writes: the facts are
completed first, and the plan is made again.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from polyarch.builds.api.formats import Phase
from polyarch.builds.facts.build_facts import BuildLookup, BuildStep
from polyarch.objects import Condition

SCHEMA = "polyarch.dev/build-plan.v1"
BuildDecision = Literal["UpToDate", "Retag", "Repoint", "InProgress", "Reassemble", "Build", "Held", "Wait", "Invalid"]
Action = Literal["Build", "Reuse", "Adopt", "Wait", "Fail", "Cancel", "None"]
IndexAction = Literal["None", "Push", "Exists", "Single"]
JOB: Final = "Job"
CONFIG_MAP: Final = "ConfigMap"


def uid_placeholder(kind: str, name: str) -> str:
    """Stands in a body for the UID of an object that an earlier write of the same plan creates."""
    return f"${{uid:{kind}/{name}}}"


class PlannedArchitecture(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``perArchitecture[]``."""

    architecture: str
    action: Action = "None"
    phase: Phase | Literal[""] = ""
    job: str = ""
    digest: str = ""
    source: str = msgspec.field(default="", name="from")
    """The execution that a reused or adopted child comes from."""
    profile: str = ""
    """The security profile of the pod that builds it, and why it was chosen."""
    reason: str = ""
    message: str = ""


class PlannedIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``index``: ``digest`` when all children are known."""

    action: IndexAction = "None"
    media_type: str = ""
    digest: str = ""


class EventObject(msgspec.Struct, frozen=True):
    """An object that an event is about, where that is not the build request. ``uid`` may be a placeholder."""

    kind: str
    name: str
    uid: str = ""


class PlannedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of each kind per architecture and execution."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    architecture: str = ""
    execution: str = ""
    about: EventObject | None = None
    """None: the build request."""


Verb = Literal["create", "prepare", "patch", "delete", "status", "push-index", "tag"]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write, carried out in the plan's order; a write that fails ends the reconcile, and the next one plans again.

    ``create`` and ``patch`` (server-side apply or merge, see ``how``) of Kubernetes objects have ``body``; that of
    ``prepare`` says what the object is a copy of, since plans hold no secret. Registry steps have ``reference``, and
    ``body`` says what they push.
    """

    verb: Verb
    kind: str = ""
    namespace: str = ""
    name: str = ""
    reference: str = ""
    step: BuildStep | Literal[""] = ""
    how: Literal["", "apply", "merge", "status", "foreground"] = ""
    """``foreground``: the object is there until its dependents are gone."""
    uid: str = ""
    resource_version: str = ""
    """Preconditions, where not empty."""
    body: Mapping[str, Any] = {}

    @classmethod
    def create(cls, body: Mapping[str, Any], *, step: BuildStep) -> "Write":
        """Creates this object."""
        return cls(verb="create", **_named(body), step=step, body=body)

    @classmethod
    def apply(cls, body: Mapping[str, Any], *, step: BuildStep) -> "Write":
        """Applies this object."""
        return cls(verb="patch", **_named(body), step=step, how="apply", body=body)

    @classmethod
    def merge(
        cls, kind: str, name: str, body: Mapping[str, Any], *, step: BuildStep, namespace: str = "", uid: str = ""
    ) -> "Write":
        """Merges the body into an object."""
        return cls(verb="patch", kind=kind, namespace=namespace, name=name, step=step, how="merge", uid=uid, body=body)

    @classmethod
    def status(
        cls, kind: str, name: str, status: Mapping[str, Any], *, step: BuildStep, namespace: str = "", uid: str = ""
    ) -> "Write":
        """Writes the whole status of an object."""
        body = {"status": status}
        return cls(verb="status", kind=kind, namespace=namespace, name=name, step=step, uid=uid, body=body)


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    return {"kind": body["kind"], "namespace": metadata.get("namespace", ""), "name": metadata["name"]}


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one build, and why."""

    decision: BuildDecision
    reason: str
    message: str
    architectures: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}
    build_key: str = ""
    execution: str = ""
    per_architecture: tuple[PlannedArchitecture, ...] = ()
    index: PlannedIndex = PlannedIndex()
    tags: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    events: tuple[PlannedEvent, ...] = ()
    writes: tuple[Write, ...] = ()
    requeue_after: float | None = None
    """Seconds."""
    lookups: tuple[BuildLookup, ...] = ()
    key_documents: Mapping[str, Mapping[str, Any]] = {}
    """The object that each key is the hash of, for ``build plan --keys`` and its comparison."""
