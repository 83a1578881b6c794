"""What a test run says about peers at its end: which took part, in which version, in how many tests, and which not.

Pure. A test that asks for a peer records a ``Use`` as a property of its report, which is how it travels between the
processes of a run.
"""

from collections.abc import Iterable
from typing import Any, Final, TypedDict

from tools.peers.catalogue import Absent, Found

PROPERTY: Final = "peer"

Properties = Iterable[tuple[str, Any]]
"""What a report carries, by name."""


class Use(TypedDict):
    """That a test asked for a peer, as JSON can carry it: its version if it was there, else why it was not."""

    name: str
    version: str
    why: str
    excused: bool


def use(name: str, found: Found | Absent) -> Use:
    """The record of one question."""
    if isinstance(found, Absent):
        return Use(name=name, version="", why=found.why, excused=found.excused)
    return Use(name=name, version=found.version, why="", excused=False)


def excused(properties: Properties) -> bool:
    """Whether a test was skipped for want of a peer that cannot be had on such a machine."""
    return any(each["excused"] for each in _uses(properties))


def summary(reports: Iterable[tuple[str, Properties]]) -> list[str]:
    """One line per peer that any test of the run asked for, from the id and the properties of each test.

    The line of a peer that is missing names the files of the tests that did not run.
    """
    files: dict[tuple[str, str, str], list[str]] = {}
    for nodeid, properties in reports:
        for each in _uses(properties):
            files.setdefault((each["name"], each["version"], each["why"]), []).append(nodeid.split("::", 1)[0])
    width = max((len(name) for name, _, _ in files), default=0)
    lines = []
    for (name, version, why), asked in sorted(files.items()):
        tests = "1 test" if len(asked) == 1 else f"{len(asked)} tests"
        outcome = f"{version}, {tests}" if version else f"{tests} of {', '.join(sorted(set(asked)))} did not run: {why}"
        lines.append(f"{name:{width}}  {outcome}")
    return lines


def _uses(properties: Properties) -> Iterable[Use]:
    return (value for name, value in properties if name == PROPERTY)
