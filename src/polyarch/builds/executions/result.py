"""What an execution publishes once its children are known: an index, or the one child itself (BD-170, BD-179). Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from polyarch.builds.executions.state import usable
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts
from polyarch.oci.write.assembly import Child, Refused, assemble
from polyarch.platforms import Platform


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result as it will be, or why there cannot be one."""

    digest: str = ""
    media_type: str = ""
    size: int = 0
    single: bool = False
    reason: str = ""
    """``MixedFormats`` or ``DuplicatePlatform``: there is no result."""
    message: str = ""


def result(children: Sequence[ChildRecord], target: Target) -> Result:
    """The result of these children; those that are not usable are left out."""
    members = sorted((each for each in children if usable(each)), key=lambda each: each.architecture)
    if len(members) == 1 and not target.wants_index(len(children)):
        only = members[0]
        return Result(digest=only.digest, media_type=only.media_type, size=only.size, single=True)
    try:
        index = assemble([_child(each) for each in members], annotations=dict(target.index_annotations))
    except Refused as refused:
        mixed = len({each.media_type for each in members}) > 1
        return Result(reason="MixedFormats" if mixed else "DuplicatePlatform", message=str(refused))
    return Result(digest=index.digest, media_type=index.media_type, size=len(index.body))


def place(facts: Facts, target: Target, child: ChildRecord) -> str:
    """The repository that a child is in now: its own execution's, or the staging repository until it is copied.

    Where nobody has asked yet, it is looked for where its Job has pushed it.
    """
    if child.phase != "Reused":
        return target.pushed_to
    source = next((each for each in facts.executions if each.name == child.reused_from), None)
    if source is None:
        return target.repository
    if source.phase == "Succeeded" or not target.staging:
        return source.repository
    known = facts.existing.get(f"{source.repository}@{child.digest}")
    return source.repository if known is not None and known.digest else target.staging


def publication(
    facts: Facts,
    target: Target,
    children: Sequence[ChildRecord],
    made: Result,
    *,
    tags: Sequence[str],
    child_tags: Mapping[str, str],
) -> dict[str, Any]:
    """The body of the step that copies, assembles, pushes and tags (S7, S8)."""
    members = sorted((each for each in children if usable(each)), key=lambda each: each.architecture)
    return {
        "repository": target.repository,
        "children": [
            {
                "architecture": each.architecture,
                "reference": f"{place(facts, target, each)}@{each.digest}",
                "tag": child_tags.get(each.architecture, ""),
            }
            for each in members
        ],
        "tags": list(tags),
        "single": made.single,
        "annotations": dict(target.index_annotations),
        "attestations": target.attestations,
        "required": list(target.required if target.partial else target.architectures),
        "digest": made.digest,
    }


def republication(execution: Execution, tags: Sequence[str]) -> dict[str, Any]:
    """The body of the step that gives a finished result these tags, where a Job does it: all of it is there."""
    members = [each for each in execution.children if usable(each)]
    return {
        "repository": execution.repository,
        "children": [
            {"architecture": each.architecture, "reference": f"{execution.repository}@{each.digest}", "tag": ""}
            for each in sorted(members, key=lambda each: each.architecture)
        ],
        "tags": list(tags),
        "single": execution.index is None,
        "annotations": dict(execution.index_annotations),
        "attestations": execution.attestations,
        "required": sorted(execution.required or (each.architecture for each in members)),
        "digest": execution.result.partition("@")[2],
    }


def _child(record: ChildRecord) -> Child:
    return Child(
        media_type=record.media_type,
        digest=record.digest,
        size=record.size,
        platform=Platform.of("linux", record.architecture, record.variant),
        source=record.architecture,
    )
