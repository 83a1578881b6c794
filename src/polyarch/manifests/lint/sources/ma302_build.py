"""MA302: a Makefile or workflow builds fewer platforms than the bundle promises.

Pure.
"""

import re
from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.sources.source_kinds import Hit, is_build, lines
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import InvalidPlatform, Platform

RULE = Rule(
    id="MA302",
    severity=Severity.INFO,
    title="A build covers fewer platforms than the bundle promises",
    meaning="A Makefile or workflow builds for one platform, but a ClusterServiceVersion in the same tree labels more.",
    default=False,
)

_BUILD = re.compile(r"--(?P<option>platform|arch)(?:=|[ \t]+)(?P<value>[^\s\\\"']+)", re.ASCII)


def check(source: SourceText, answers: Answers, options: LintOptions) -> Iterator[Hit]:
    if not is_build(source.path):
        return
    found = []
    for start, line in lines(source.text):
        if not line.lstrip().startswith("#"):
            found += [(start, match) for match in _BUILD.finditer(line)]
    if any("$" in match["value"] for _, match in found):  # the platforms are chosen elsewhere
        return
    built = {architecture for _, match in found for architecture in _architectures(match["value"])}
    missing = sorted(set(options.labelled) - built)
    for start, match in found if built and missing else ():
        if len(_architectures(match["value"])) == 1:
            yield Hit(
                RULE,
                start + match.start(),
                start + match.end(),
                f"{source.path} builds with {match[0].strip()}, but the ClusterServiceVersion also labels "
                f"{', '.join(missing)}",
                "build for every labelled architecture",
            )


def _architectures(value: str) -> tuple[str, ...]:
    """The architectures in an option's value; none if it is not a list of platforms."""
    try:
        return tuple(Platform.parse(each).architecture for each in value.split(","))
    except InvalidPlatform:
        return ()
