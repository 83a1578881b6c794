"""The options that ``polyarch lint``, ``polyarch fix`` and their kind share.

Only declarations: ``--help`` needs them and shall take no longer than reading it (MF-090), so nothing is imported here
but what declares options. ``linting`` and ``resolve`` give them their meaning.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions, flag, several

FailOnOption = Literal["error", "warning", "info", "never"]
Format = Literal["text", "json", "sarif", "junit", "github", "markdown", "csv"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Where the platforms of images come from."""

    platforms_file: Annotated[str | None, Parameter(help="Answers given by hand or by polyarch inspect -o json.")] = (
        None
    )
    offline: Annotated[bool, flag("Ask nobody: --platforms-file answers, or nothing.")] = False
    deep: Annotated[
        Literal["config", "elf"] | None,
        Parameter(help="Look into every image: at its config, or at the program that it starts, too."),
    ] = None
    cache_dir: Annotated[str | None, Parameter(help="Where readings are kept between runs.")] = None
    no_cache: Annotated[bool, flag("Keep nothing and use nothing kept.")] = False
    fresh: Annotated[bool, flag("Check every tag now, whatever is kept.")] = False
    access: RegistryOptions = DEFAULT_OPTIONS


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Which rules run, on what, and how bad findings are."""

    platforms: Annotated[list[str] | None, several("Platforms of the cluster, by commas; arm64 is linux/arm64.")] = None
    require: Annotated[list[str] | None, several("Platforms that every image must have, by commas.")] = None
    include: Annotated[list[str] | None, several("Rules to run besides, MA112 or MA3*, by commas.")] = None
    exclude: Annotated[list[str] | None, several("Rules not to run, by commas; the longer pattern counts.")] = None
    severity: Annotated[list[str] | None, several("RULE=LEVEL, by commas; LEVEL is error, warning or info.")] = None
    fail_on: Annotated[FailOnOption | None, Parameter(help="The least severity that fails the run: warning.")] = None
    strict: Annotated[bool, flag("An image that is not known is an error.")] = False
    unresolved: Annotated[
        Literal["auto", "finding", "ignore"],
        Parameter(help="Images nobody could be asked about end with 3, are findings only, or are passed over."),
    ] = "auto"
    ignore_path: Annotated[list[str] | None, several("Files or directories to leave out; may be repeated.")] = None
    config: Annotated[str | None, Parameter(help="Configuration to use instead of the nearest .polyarch.yaml.")] = None


DEFAULT_IMAGES = ImageOptions()
DEFAULT_RULES = RuleOptions()
