"""What a run of the rules is told, from the command line and ``.polyarch.yaml`` together.

Options win over the file. Everything that names a rule, a platform or a file is checked before the first file is read.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from polyarch.cli.errors import UsageError
from polyarch.cli.input.files import STDIN, IgnorePatterns, folders_upward, read_file
from polyarch.cli.input.objects import load_platforms_file
from polyarch.cli.options.images import ImageOptions, RuleOptions
from polyarch.cli.output.messages import USUAL, Messages
from polyarch.manifests import lockfile
from polyarch.manifests.baseline import Baseline, InvalidBaseline
from polyarch.manifests.configuration import (
    FILE_NAME,
    Configuration,
    InvalidLintConfiguration,
    check_pattern,
    node_platform,
)
from polyarch.manifests.finding import Severity
from polyarch.manifests.lockfile import InvalidLock
from polyarch.manifests.report import FailOn
from polyarch.manifests.rules.options import FixOptions, LintOptions, LockEntry, Selection
from polyarch.manifests.scan.text import SourceText, UnreadableText
from polyarch.oci.platforms_file import AnswerFile
from polyarch.platforms import KNOWN_ARCHITECTURES, InvalidPlatform, NodePlatform

UNREADABLE = ("MA902",)
"""The rules that say that a text was not judged."""


@dataclass(frozen=True)
class Settings:
    """Everything decided before a file is looked at."""

    options: LintOptions
    fail_on: FailOn
    ignored: IgnorePatterns
    platforms_file: AnswerFile | None
    lock_path: str | None = None
    locked: Mapping[str, LockEntry] = field(default_factory=dict)
    """What is in the lock file; ``options.lock`` is the same unless the file is about to be written again."""


def settle(
    rules: RuleOptions,
    images: ImageOptions,
    *,
    lock: str | None = None,
    update_lock: bool = False,
    fail_on: FailOn = "warning",
    fixes: FixOptions = FixOptions(),  # noqa: B008 - frozen
    only: Sequence[str] | None = None,
    messages: Messages = USUAL,
) -> Settings:
    """Raises ``UsageError`` for what cannot be used. ``fail_on`` is the command's own default."""
    configuration, folder = configured(rules.config, messages)
    images.check()
    platforms_file = images.platforms_file or _beside(folder, configuration.platforms_file)
    lock_path = lock or _beside(folder, configuration.lock)
    if update_lock and lock_path is None:
        raise UsageError("--update-lock needs a lock file: give --lock FILE")
    locked = read_lock(lock_path, may_be_missing=update_lock) if lock_path is not None else {}
    options = LintOptions(
        platforms=parse_platforms("--platforms", rules.platforms) or configuration.platforms,
        require=parse_platforms("--require", rules.require) or configuration.require,
        prefer=configuration.prefer,
        taints=configuration.taints,
        lock=locked if lock_path is not None and not update_lock else None,
        selection=_selection(rules, only, configuration),
        severities={**configuration.severity, **_severities(rules.severity)},
        strict=rules.strict,
        unresolved=rules.unresolved,
        fixes=fixes,
    )
    return Settings(
        options=options,
        fail_on=rules.fail_on or configuration.fail_on or fail_on,
        ignored=IgnorePatterns(tuple(rules.ignore_path))
        if rules.ignore_path
        else IgnorePatterns(configuration.ignore_paths, folder),
        platforms_file=load_platforms_file(platforms_file) if platforms_file is not None else None,
        lock_path=lock_path,
        locked=locked,
    )


def _selection(rules: RuleOptions, only: Sequence[str] | None, configuration: Configuration) -> Selection:
    """``--only`` replaces what the configuration selects; texts that cannot be read are found even then."""
    include, exclude = patterns("--include", rules.include), patterns("--exclude", rules.exclude)
    if only:
        chosen = patterns("--only", only)
        if not chosen:
            raise UsageError("--only: names no rule; polyarch lint --rules lists them")
        others = () if "*" in chosen else ("*",)  # of equal patterns the exclusion wins
        return Selection(include=(*chosen, *include, *UNREADABLE), exclude=(*others, *exclude))
    return Selection(include=include or configuration.include, exclude=exclude or configuration.exclude)


def configured(named: str | None, messages: Messages = USUAL) -> tuple[Configuration, Path]:
    """The configuration and the folder that its paths are relative to."""
    path = named if named is not None else nearest_configuration()
    messages.detail(f"configuration: {path}" if path is not None else "configuration: none")
    if path is None:
        return Configuration(), Path()
    try:
        source = SourceText.of(path, read_file(path))
        return Configuration.read(source), Path(path).parent
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}; expected a configuration file") from None
    except (InvalidLintConfiguration, UnreadableText) as error:
        raise UsageError(str(error)) from None


def nearest_configuration() -> str | None:
    """``.polyarch.yaml`` in the working directory or above it, not beyond the repository's root or home."""
    found = (folder / FILE_NAME for folder in folders_upward(Path.cwd()))
    nearest = next((path for path in found if path.is_file()), None)
    return os.path.relpath(nearest) if nearest is not None else None


def read_lock(path: str, *, may_be_missing: bool = False) -> dict[str, LockEntry]:
    """The entries of a lock file; ``UsageError`` if it cannot be used."""
    if may_be_missing and not Path(path).exists():
        return {}
    try:
        return lockfile.read(SourceText.of(path, read_file(path)))
    except OSError as error:
        hint = f"write it with polyarch lint --lock {path} --update-lock PATH"
        raise UsageError(f"--lock {path}: {error.strerror}; {hint}") from None
    except (InvalidLock, UnreadableText) as error:
        raise UsageError(str(error)) from None


def read_baseline(path: str) -> Baseline:
    """``UsageError`` if it cannot be used."""
    try:
        return Baseline.read(path, read_file(path), place=lru_cache(maxsize=None)(existing_file))
    except OSError as error:
        raise UsageError(f"--baseline {path}: {error.strerror}; write it with --write-baseline {path}") from None
    except InvalidBaseline as error:
        raise UsageError(str(error)) from None


def existing_file(path: str) -> str | None:
    """The file that a path means, whatever its spelling; None where there is none."""
    return path if path == STDIN else os.path.realpath(path) if Path(path).exists() else None


def split(texts: Sequence[str] | None) -> list[str]:
    """The values of an option that takes several by commas."""
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def parse_platforms(option: str, texts: Sequence[str] | None) -> tuple[NodePlatform, ...]:
    """The platforms that an option names, each once."""
    found: dict[NodePlatform, None] = {}
    for text in split(texts):
        try:
            found[node_platform(text)] = None
        except InvalidPlatform as error:
            raise UsageError(f"{option}: {error}") from None
    return tuple(found)


def parse_weights(option: str, texts: Sequence[str] | None) -> dict[str, int]:
    """``ARCH=WEIGHT`` as the configuration's ``prefer`` says it."""
    found = {}
    for text in split(texts):
        name, _, weight = text.partition("=")
        if name not in KNOWN_ARCHITECTURES or not weight.isdecimal() or not 1 <= int(weight) <= 100:
            raise UsageError(f"{option} {text}: write ARCH=WEIGHT, such as arm64=50, with a weight from 1 to 100")
        found[name] = int(weight)
    return found


def patterns(option: str, texts: Sequence[str] | None) -> tuple[str, ...]:
    """The rules that an option names, each an id or the beginning of one and ``*``, in any case."""
    found = [text.upper() for text in split(texts)]
    for text in found:
        problem = check_pattern(text)
        if problem:
            raise UsageError(f"{option}: {problem}")
    return tuple(found)


def _severities(texts: Sequence[str] | None) -> dict[str, Severity]:
    found = {}
    for text in split(texts):
        pattern, equals, level = text.partition("=")
        pattern, level = pattern.upper(), level.lower()
        if not equals or level not in tuple(Severity):
            raise UsageError(f"--severity {text}: write RULE=LEVEL, LEVEL one of {', '.join(Severity)}")
        problem = check_pattern(pattern)
        if problem:
            raise UsageError(f"--severity: {problem}")
        found[pattern] = Severity(level)
    return found


def _beside(folder: Path, path: str | None) -> str | None:
    return str(folder / path) if path is not None else None
