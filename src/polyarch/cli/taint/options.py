"""The options that the commands of ``polyarch taint`` share. Declarations only, so that ``--help`` starts fast."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.options.values import File, Placeholder, option, subject

CONFIGURED = subject("Configuration")

Mode = Annotated[Literal["secondary-only", "tolerations", "both"], Placeholder("MODE")]
Preset = Annotated[Literal["archaware", "gke", "openshift", "custom"], Placeholder("PRESET")]
Architectures = Annotated[str, Placeholder("ARCHITECTURES")]
Key = Annotated[str, Placeholder("KEY")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConfigurationFlags:
    """What an ArchitectureTaints says, for clusters that have none."""

    config: Annotated[
        File | None,
        option("An ArchitectureTaints object in a file, used instead of the cluster's", group=CONFIGURED),
    ] = None
    mode: Annotated[
        Mode | None,
        option(
            "Which nodes get taints: those of other than the primary architectures, or all",
            group=CONFIGURED,
            show_default="secondary-only",
        ),
    ] = None
    primary: Annotated[
        list[Architectures] | None,
        option("Primary architectures, comma-separated", group=CONFIGURED, show_default="amd64"),
    ] = None
    architectures: Annotated[
        list[Architectures] | None,
        option("Architectures to manage, comma-separated", group=CONFIGURED, show_default="all"),
    ] = None
    preset: Annotated[
        Preset | None,
        option("Where the key of the taint comes from", group=CONFIGURED, show_default="archaware"),
    ] = None
    key: Annotated[Key | None, option("Key of the taint; without --preset it means custom", group=CONFIGURED)] = None


UNCONFIGURED = ConfigurationFlags()
