"""The options that ``polyarch lint``, ``polyarch fix`` and their kind share.

Only declarations: ``--help`` needs them and shall take no longer than reading it (MF-090), so nothing is imported here
but what declares options. ``lint.settings`` and ``images.resolve`` give them their meaning.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions
from polyarch.cli.options.values import (
    IMAGES,
    RULES,
    Directory,
    File,
    Glob,
    Levels,
    Placeholder,
    Platforms,
    Rules,
    flag,
    option,
    subject,
)

CHECKED = subject("What to check")

FailOnOption = Annotated[Literal["error", "warning", "info", "never"], Placeholder("LEVEL")]
Unresolved = Annotated[Literal["auto", "finding", "ignore"], Placeholder("POLICY")]
Depth = Annotated[Literal["config", "elf"], Placeholder("DEPTH")]
ReportFormat = Annotated[
    Literal["text", "json", "yaml", "sarif", "junit", "github", "markdown", "csv"], Placeholder("FORMAT[=FILE]")
]
REPORT_FORMATS = ("text", "json", "yaml", "sarif", "junit", "github", "markdown", "csv")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Where the platforms of images come from."""

    platforms_file: Annotated[
        File | None,
        option("Known platforms of images, YAML or JSON; polyarch inspect -o json writes one", group=IMAGES),
    ] = None
    offline: Annotated[bool, flag("Do not contact registries", group=IMAGES)] = False
    deep: Annotated[
        Depth | None,
        option("Also check every platform's config (config), or its entrypoint binary, too (elf)", group=IMAGES),
    ] = None
    cache_dir: Annotated[
        Directory | None, option("Cache directory", group=IMAGES, show_default="~/.cache/polyarch")
    ] = None
    no_cache: Annotated[bool, flag("Do not read or write the cache", group=IMAGES)] = False
    fresh: Annotated[bool, flag("Check every tag again, even if it is cached", group=IMAGES)] = False
    access: RegistryOptions = DEFAULT_OPTIONS

    def check(self) -> None:
        """``UsageError`` for options that contradict each other."""
        self.access.check()
        if self.no_cache and self.cache_dir is not None:
            raise UsageError("--no-cache and --cache-dir cannot be combined; remove one of them")
        if self.deep is not None and self.offline:
            raise UsageError("--deep needs registries and cannot be combined with --offline")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Which rules run, on what, and how bad findings are."""

    platforms: Annotated[
        list[Platforms] | None,
        option(
            "Platforms of the cluster's nodes, comma-separated; arm64 is short for linux/arm64",
            group=RULES,
            show_default="linux on amd64, arm64, ppc64le, s390x",
        ),
    ] = None
    require: Annotated[
        list[Platforms] | None, option("Platforms that every image must support, comma-separated", group=RULES)
    ] = None
    include: Annotated[
        list[Rules] | None, option("Extra rules to enable, comma-separated, such as MA112,MA3*", group=RULES)
    ] = None
    exclude: Annotated[
        list[Rules] | None, option("Rules to disable, comma-separated; the longer pattern wins", group=RULES)
    ] = None
    severity: Annotated[
        list[Levels] | None,
        option("Change severities, comma-separated; LEVEL is error, warning or info", group=RULES),
    ] = None
    fail_on: Annotated[
        FailOnOption | None,
        option("Exit with 1 for findings of at least this severity", group=RULES, show_default="warning"),
    ] = None
    strict: Annotated[bool, flag("Treat images without an answer (MA001) as errors", group=RULES)] = False
    unresolved: Annotated[
        Unresolved,
        option("If images could not be inspected: exit with 3 (auto), report only (finding), or ignore", group=RULES),
    ] = "auto"
    ignore_path: Annotated[
        list[Glob] | None, option("Skip files and directories, as .gitignore has it; repeatable", group=CHECKED)
    ] = None
    config: Annotated[
        File | None, option("Configuration file", group=CHECKED, show_default="the nearest .polyarch.yaml")
    ] = None


DEFAULT_IMAGES = ImageOptions()
DEFAULT_RULES = RuleOptions()
