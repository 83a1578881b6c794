"""Combines the documents of an index into the entries of its answer (RG-042 to RG-044).

An index can name further indexes, and children without a platform, which have to be read first. :func:`wanted` lists
what is still missing and :func:`flatten` builds the answer, both from a mapping of digest to finding. The caller
fetches in rounds until nothing is wanted.

Pure: imports neither asyncio nor aiohttp.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from polyarch.oci.answer import Entry, InspectionError, InspectionWarning, Skipped
from polyarch.oci.documents import INDEX_LIMIT, LEVEL_LIMIT, LOOKUP_LIMIT, ContentError
from polyarch.oci.image.parsing import ConfigReading, IndexEntry, IndexReading, platform_warnings
from polyarch.platforms import Platform


class Artifact(msgspec.Struct, frozen=True, gc=False):
    """A child that is an artifact, not an image (RG-043)."""

    artifact_type: str = ""


Finding = IndexReading | ConfigReading | Artifact | InspectionError
"""The content of the digest that an entry names, or the error of reading it."""


class Flattened(msgspec.Struct, frozen=True, gc=False):
    """The entries of an answer; or ``error``, if every candidate failed (RG-043)."""

    entries: tuple[Entry, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[InspectionWarning, ...] = ()
    error: InspectionError | None = None


def wanted(top: IndexReading, found: Mapping[str, Finding]) -> tuple[IndexEntry, ...]:
    """The entries whose documents still have to be read, each digest once and in order.

    Raises :class:`ContentError` ``too-complex`` as soon as they would exceed a limit (RG-042, RG-050).
    """
    missing: dict[str, IndexEntry] = {}
    indexes, lookups = 1, 0
    for entry, level in _open_entries(top, found):
        finding = found.get(entry.digest)
        if finding is None:
            missing[entry.digest] = entry
        is_index = entry.outcome == "index" if finding is None else isinstance(finding, IndexReading)
        if is_index:
            indexes += 1
            if level == LEVEL_LIMIT:
                raise ContentError(
                    "too-complex", f"indexes are nested {level + 1} deep where at most {LEVEL_LIMIT} are read"
                )
        if entry.outcome == "unstated":
            lookups += 1
    if indexes > INDEX_LIMIT:
        raise ContentError("too-complex", f"the image has {indexes} indexes where at most {INDEX_LIMIT} are read")
    if lookups > LOOKUP_LIMIT:
        raise ContentError(
            "too-complex", f"{lookups} entries state no platform where at most {LOOKUP_LIMIT} are looked up"
        )
    return tuple(missing.values())


def flatten(top: IndexReading, found: Mapping[str, Finding], *, every: bool = False) -> Flattened:
    """The runnable entries in order, unique by platform (RG-042 to RG-044). Call it when nothing is wanted any more.

    With ``every`` a platform that is stated twice keeps both entries: a copy of an index must not drop one silently.
    """
    runnable: list[Entry] = []
    skipped: list[Skipped] = []
    warnings: list[InspectionWarning] = []
    failures: list[InspectionError] = []
    if inner := [entry.digest for entry in top.entries if isinstance(found.get(entry.digest), IndexReading)]:
        # Readable (RG-042), but not by every tool, so say it (MF-076).
        warnings.append(InspectionWarning("nested-index", f"{', '.join(inner)} in the index is an index itself"))
    for entry in _entries(top, found):
        if entry.outcome == "skipped":
            skipped.append(Skipped(entry.digest, entry.reason))
            continue
        if entry.outcome == "runnable" and entry.platform is not None:
            runnable.append(Entry(entry.platform, entry.digest, entry.size, entry.stated))
            continue
        finding = found.get(entry.digest)
        if isinstance(finding, ConfigReading):
            if finding.platform is None:
                skipped.append(Skipped(entry.digest, "empty-config"))
            else:
                runnable.append(Entry(finding.platform, entry.digest, entry.size, finding.stated))
                warnings += [each for each in finding.warnings if each.code in ("empty-os", "schema1")]
        elif isinstance(finding, Artifact):
            skipped.append(Skipped(entry.digest, "artifact"))
        elif isinstance(finding, InspectionError):
            failures.append(finding)
            skipped.append(Skipped(entry.digest, "no-platform"))
            message = f"{entry.digest} could not be asked for its platform: {finding.message}"
            warnings.append(InspectionWarning("child-unresolved", message))
        elif finding is None:
            raise ValueError(f"{entry.digest} has not been read yet")
    if not runnable and failures:
        return Flattened(skipped=tuple(skipped), warnings=tuple(warnings), error=_worth_telling(failures))
    entries = list(dict.fromkeys(runnable)) if every else _unique(runnable, warnings)
    warnings += platform_warnings(entry.platform for entry in entries)
    if not entries:
        warnings.append(InspectionWarning("no-platforms", _counted(skipped)))
    return Flattened(tuple(entries), tuple(skipped), tuple(dict.fromkeys(warnings)))


def _entries(top: IndexReading, found: Mapping[str, Finding]) -> Iterator[IndexEntry]:
    # Depth first: the entries of an inner index stand in place of the entry that names it, once.
    seen: set[str] = set()
    pending = [iter(top.entries)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
            continue
        finding = found.get(entry.digest) if entry.outcome in ("index", "unstated") else None
        if isinstance(finding, IndexReading):
            if entry.digest not in seen:
                seen.add(entry.digest)
                pending.append(iter(finding.entries))
            continue
        yield entry


def _open_entries(top: IndexReading, found: Mapping[str, Finding]) -> Iterator[tuple[IndexEntry, int]]:
    # Every entry whose document has to be read, with the level of its index, each digest once. Breadth first, so that
    # a digest named at several levels counts at the lowest.
    seen: set[str] = set()
    readings, level = [top], 1
    while readings:
        deeper: list[IndexReading] = []
        for reading in readings:
            for entry in reading.entries:
                if entry.outcome not in ("index", "unstated") or entry.digest in seen:
                    continue
                seen.add(entry.digest)
                yield entry, level
                finding = found.get(entry.digest)
                if isinstance(finding, IndexReading):
                    deeper.append(finding)
        readings, level = deeper, level + 1


def _unique(runnable: list[Entry], warnings: list[InspectionWarning]) -> list[Entry]:
    first: dict[Platform, Entry] = {}
    for entry in runnable:
        other = first.setdefault(entry.platform, entry)
        if other.digest != entry.digest:
            message = f"{entry.platform} is stated twice: {other.digest} counts, {entry.digest} does not"
            warnings.append(InspectionWarning("duplicate-platform", message))
    return list(first.values())


def _worth_telling(failures: list[InspectionError]) -> InspectionError:
    # Prefer a transient error: the next attempt may succeed.
    return next((failure for failure in failures if failure.error_class in ("transient", "limit")), failures[0])


def _counted(skipped: list[Skipped]) -> str:
    if not skipped:
        return "the index is empty"
    counts = Counter(each.reason for each in skipped)
    return f"no entry can run; skipped: {', '.join(f'{count} {reason}' for reason, count in sorted(counts.items()))}"
