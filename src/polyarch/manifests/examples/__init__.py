"""One example for each rule: a text with the finding, one without, and the fixed text.

``polyarch lint --explain``, the documentation and the tests read the same files. The tests run them, so an
explanation cannot claim what the program does not do.
"""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
import yaml

from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.options import FixOptions, LintOptions, LockEntry, Selection, Taints
from polyarch.oci.inspection import Inspection
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import InvalidReference, parse
from polyarch.platforms import NodePlatform, Platform


class ExampleOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Options of an example, from command line or configuration."""

    platforms: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    prefer: dict[str, int] = {}
    taints: Taints | None = None
    lock: dict[str, LockEntry] | None = None
    labelled: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    flags: FixOptions = FixOptions()
    """Of ``polyarch fix``; without them the repair would be refused."""


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of one rule, with the answers for their images."""

    bad: str
    good: str
    fixed: str = ""
    """Empty for rules without a repair."""
    file: str = "web.yaml"
    """Name of the file that holds the texts."""
    severity: Severity | None = None
    """Of the finding, where it is not the rule's default."""
    answers: dict[str, Any] = {}
    """In the format of a platforms file."""
    indexes: dict[str, str] = {}
    """Image by digest → the image of ``answers`` that shows its index."""
    options: ExampleOptions = ExampleOptions()

    def images(self) -> dict[str, Inspection]:
        """The answers by their own texts."""
        file = AnswerFile.from_mapping(self.answers)
        return {text: answer for text in self.answers if (answer := _answer(file, text)) is not None}

    def platforms_file(self) -> str:
        """The answers as lines that ``--platforms-file`` takes."""
        return "".join(
            yaml.safe_dump({text: answer}, default_flow_style=None, sort_keys=False, width=1000)
            for text, answer in self.answers.items()
        )

    def lint_options(self) -> LintOptions:
        options = self.options
        return LintOptions(
            platforms=_platforms(options.platforms),
            require=_platforms(options.require),
            prefer=options.prefer,
            taints=options.taints,
            lock=options.lock,
            labelled=options.labelled,
            selection=Selection(include=options.include),
            fixes=options.flags,
        )


def _answer(file: AnswerFile, text: str) -> Inspection | None:
    try:
        return file.get(parse(text))
    except InvalidReference:
        return None


def _platforms(texts: tuple[str, ...]) -> tuple[NodePlatform, ...]:
    return tuple(Platform.parse(text).node for text in texts)


def ids() -> tuple[str, ...]:
    """The rules that have an example, in order."""
    names = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load(rule: str) -> Example:
    """The example of a rule; raises KeyError for one without."""
    if rule not in ids():
        raise KeyError(rule)
    text = resources.files(__name__).joinpath(f"{rule}.yaml").read_text(encoding="utf-8")
    document: Mapping[str, Any] = yaml.safe_load(text)
    return msgspec.convert(document, Example)
