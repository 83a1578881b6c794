"""The answer to ``operator-sdk bundle validate --alpha-select-external`` (MF-079).

operator-sdk runs the program with the bundle's directory and strictly decodes one object from its stdout: the members
are those of ``ManifestResult``, lists are never null, and there is no place for findings that are only information.

Pure.
"""

import json
from collections.abc import Iterable, Sequence

import msgspec

from polyarch.manifests.bundle.compat import Output
from polyarch.manifests.finding import Finding, Severity


class Entry(msgspec.Struct, frozen=True):
    """One ``Error`` of operator-framework's ``ManifestResult``."""

    type: str
    level: str
    field: str
    bad_value: str
    detail: str

    def document(self) -> dict[str, str]:
        return {
            "Type": self.type,
            "Level": self.level,
            "Field": self.field,
            "BadValue": self.bad_value,
            "Detail": self.detail,
        }


def native_entries(findings: Iterable[Finding], name: str) -> list[Entry]:
    """Errors and warnings that count; ``name`` is the ClusterServiceVersion's."""
    return [
        Entry(
            type="ValidationFailed",
            level=finding.severity.value.capitalize(),
            field=finding.path,
            bad_value=name,
            detail=f"{finding.rule}: {finding.message}",
        )
        for finding in findings
        if finding.suppressed is None and finding.severity is not Severity.INFO
    ]


def compat_entries(outputs: Iterable[Output], name: str) -> list[Entry]:
    """The entries that the built-in validator would return."""
    return [
        Entry(type=each.type, level=each.level.capitalize(), field="", bad_value=name, detail=each.detail)
        for each in outputs
    ]


def invalid(problem: str, name: str) -> Entry:
    """A directory that is no bundle."""
    return Entry(type="BundleNotValid", level="Error", field="", bad_value=name, detail=problem)


def result(name: str, entries: Sequence[Entry]) -> str:
    """The one object; ends with a line break."""
    document = {
        "Name": name,
        "Errors": [each.document() for each in entries if each.level == "Error"],
        "Warnings": [each.document() for each in entries if each.level == "Warning"],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"
