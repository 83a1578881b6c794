"""What ``polyarch inspect`` says: one document, and the rows, the CSV and the exit code made of the same answers
(RG-141 to RG-143). Pure but for writing CSV to a text."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from polyarch.cli.images.image_lists import Given
from polyarch.cli.output.tables import Row
from polyarch.oci.answer import Entry, Inspection, InspectionError, InspectionWarning, Status
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.platforms_file import SCHEMA_VERSION
from polyarch.oci.traffic.pacing import RateLimit
from polyarch.platforms import NodePlatform

PLAN_SCHEMA_VERSION = "polyarch.dev/inspect-plan/v1"
HEADER = ("IMAGE", "KIND", "DIGEST", "PLATFORMS", "NOTES")
PLAN_HEADER = ("IMAGE", "SOURCE", "REPOSITORY", "TAG OR DIGEST", "ROLE", "CREDENTIAL", "NOTES")
LIMIT_HEADER = ("HOST", "LIMIT", "REMAINING", "WINDOW")
CSV_HEADER = (
    "image",
    "reference",
    "status",
    "kind",
    "digest",
    "platforms",
    "missing",
    "warnings",
    "error",
    "message",
)
FINDINGS = frozenset({"mislabelled", "child-missing", "wrong-binary"})
"""Warnings that make the exit code 1 (RG-141)."""


class Answered(NamedTuple):
    """An image as it was given, and its answer."""

    given: Given
    answer: Inspection


class Planned(NamedTuple):
    """A source in the order of asking; ``credential`` says where that would come from (RG-097)."""

    source: Source
    credential: str


def missing(answer: Inspection, required: Sequence[NodePlatform]) -> list[NodePlatform]:
    """The required node platforms that a resolved image lacks; whoever is neutral lacks nothing (RG-141)."""
    if not answer.constrains:
        return []
    there = set(answer.node_platforms)
    return [each for each in required if each not in there]


def exit_code(answers: Iterable[Inspection], required: Sequence[NodePlatform]) -> int:
    """3 if an answer is an error, 1 if one is a finding, else 0 (RG-141)."""
    code = 0
    for answer in answers:
        if answer.status is Status.ERROR:
            return 3
        empty = answer.constrains and not answer.entries
        findings = any(warning.code in FINDINGS for warning in answer.warnings)
        if answer.status is Status.UNKNOWN or empty or findings or missing(answer, required):
            code = 1
    return code


def document(
    answered: Sequence[Answered], required: Sequence[NodePlatform], limits: Mapping[str, RateLimit]
) -> dict[str, Any]:
    """``polyarch.dev/inspect/v1`` (RG-142): every key is always there."""
    counts = Counter(str(each.answer.status) for each in answered)
    return {
        "schemaVersion": SCHEMA_VERSION,
        "images": [_image(each.given, each.answer, required) for each in answered],
        "rateLimits": {
            host: {"limit": rate.limit, "remaining": rate.remaining, "window": rate.window}
            for host, rate in sorted(limits.items())
        },
        "summary": {str(status): counts[str(status)] for status in Status},
    }


def rows(answered: Iterable[Answered], required: Sequence[NodePlatform]) -> list[Row]:
    """One row per image (RG-143)."""
    return [_row(each.given, each.answer, required) for each in answered]


def csv_text(answered: Iterable[Answered], required: Sequence[NodePlatform]) -> str:
    """The same as comma-separated values, one line per image; lists are separated by blanks."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for given, answer in answered:
        writer.writerow(
            (
                given.text,
                given.reference.canonical,
                str(answer.status),
                answer.kind,
                answer.digest,
                " ".join(str(entry.platform) for entry in _sorted(answer)),
                " ".join(map(str, missing(answer, required))),
                " ".join(dict.fromkeys(warning.code for warning in answer.warnings)),
                answer.error.code if answer.error is not None else "",
                answer.error.message if answer.error is not None else "",
            )
        )
    return out.getvalue()


def plan_document(plans: Sequence[tuple[Given, Sequence[Planned] | InspectionError]]) -> dict[str, Any]:
    """``polyarch.dev/inspect-plan/v1``: where each image would be asked for (RG-097)."""
    return {
        "schemaVersion": PLAN_SCHEMA_VERSION,
        "images": [
            {
                "image": given.text,
                "reference": given.reference.canonical,
                "sources": []
                if isinstance(plan, InspectionError)
                else [
                    {
                        "url": _base(each.source),
                        "repository": each.source.repository,
                        "tag": each.source.tag,
                        "digest": each.source.digest,
                        "mirror": each.source.mirror,
                        "insecure": each.source.insecure,
                        "query": each.source.query,
                        "configuredBy": each.source.origin,
                        "credential": each.credential,
                    }
                    for each in plan
                ],
                "error": _error(plan) if isinstance(plan, InspectionError) else None,
            }
            for given, plan in plans
        ],
    }


def plan_rows(plans: Iterable[tuple[Given, Sequence[Planned] | InspectionError]]) -> list[Row]:
    """One row per source, in the order of asking."""
    found: list[Row] = []
    for given, plan in plans:
        if isinstance(plan, InspectionError):
            found.append(Row((given.text, "", "", "", "", "", _said(given, plan)), "red"))
            continue
        for planned in plan:
            source = planned.source
            notes = [
                *(["insecure"] if source.insecure else []),
                *([f"?{source.query}"] if source.query else []),
                *([f"by {source.origin}"] if source.origin else []),
            ]
            role = "mirror" if source.mirror else "primary"
            selector = source.digest or source.tag or ""
            cells = (given.text, _base(source), source.repository, selector, role, planned.credential, ", ".join(notes))
            found.append(Row(cells))
    return found


def limit_rows(limits: Mapping[str, RateLimit]) -> list[Row]:
    """What the registries said of their rate limits (RG-063)."""
    return [
        Row((host, str(rate.limit), str(rate.remaining), f"{rate.window} s" if rate.window else ""))
        for host, rate in sorted(limits.items())
    ]


def _base(source: Source) -> str:
    return f"{source.base_url}{source.path_prefix}"


def _sorted(answer: Inspection) -> list[Entry]:
    return sorted(answer.entries, key=lambda entry: entry.platform)


def _image(given: Given, answer: Inspection, required: Sequence[NodePlatform]) -> dict[str, Any]:
    source = answer.source
    return {
        "image": given.text,
        "reference": given.reference.canonical,
        "status": str(answer.status),
        "kind": answer.kind,
        "digest": answer.digest,
        "mediaType": answer.media_type,
        "platforms": [
            {
                "platform": str(entry.platform),
                "os": entry.platform.os,
                "architecture": entry.platform.architecture,
                "variant": entry.platform.variant,
                "osVersion": entry.platform.os_version,
                "osFeatures": list(entry.platform.os_features),
                "digest": entry.digest,
                "size": entry.size,
            }
            for entry in _sorted(answer)
        ],
        "nodePlatforms": [str(each) for each in answer.node_platforms],
        "neutralReason": answer.neutral_reason,
        "skipped": [{"digest": each.digest, "reason": each.reason} for each in answer.skipped],
        "warnings": [{"code": each.code, "message": each.message} for each in answer.warnings],
        "missing": [str(each) for each in missing(answer, required)],
        "source": None
        if source is None
        else {"host": source.host, "mirror": source.mirror, "insecure": source.insecure},
        "cached": answer.cached,
        "requests": answer.requests,
        "error": _error(answer.error) if answer.error is not None else None,
    }


def _error(error: InspectionError) -> dict[str, Any]:
    return {
        "code": error.code,
        "class": error.error_class,
        "message": error.message,
        "status": error.status,
        "retryAfter": error.retry_after,
        "attempts": list(error.attempts),
    }


def _row(given: Given, answer: Inspection, required: Sequence[NodePlatform]) -> Row:
    if answer.error is not None:
        return Row((given.text, answer.kind, "", "", _said(given, answer.error)), "red")
    lacking = missing(answer, required)
    notes = [
        *([f"lacks {', '.join(map(str, lacking))}"] if lacking else []),
        *([answer.neutral_reason.replace("-", " ")] if answer.neutral_reason else []),
        *dict.fromkeys(_noted(warning) for warning in answer.warnings),
        *([f"from mirror {answer.source.host}"] if answer.source is not None and answer.source.mirror else []),
    ]
    finding = exit_code([answer], required) == 1
    digest = answer.digest.partition(":")[2][:12]
    return Row((given.text, answer.kind, digest, _platforms(answer), ", ".join(notes)), "yellow" if finding else "")


def _noted(warning: InspectionWarning) -> str:
    """What is a finding is told in full: it cannot be guessed from its code."""
    return f"{warning.code}: {warning.message}" if warning.code in FINDINGS else warning.code


def _platforms(answer: Inspection) -> str:
    if answer.status is Status.NEUTRAL:
        return "any"
    if answer.status is Status.UNKNOWN:
        return "unknown"
    return ",".join(str(entry.platform) for entry in _sorted(answer)) or "none"


def _said(given: Given, error: InspectionError) -> str:
    """The error without the image's name, which stands in its own column."""
    return error.message.removeprefix(f"{given.reference.canonical}: ")
