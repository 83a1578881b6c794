"""Which configuration a command works with: a file, the cluster's object, or what the flags say.

Flags describe an object for a cluster that has none. Where there is one it counts, and flags beside it are refused:
two configurations for one cluster would undo each other's work."""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import read_taints
from polyarch.cli.taint.options import ConfigurationFlags
from polyarch.kube.client import Client
from polyarch.kube.declared_settings import without_defaults
from polyarch.kube.errors import NotFound
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.crd import InvalidTaintsConfiguration, validated
from polyarch.taints.names import SINGLETON
from polyarch.taints.plan import released
from polyarch.taints.settings import TAINT_SETTINGS, TaintSettings

Document = dict[str, Any]
Source = Literal["file", "cluster", "flags", "defaults"]
_HINTS: Final = {"spec.taint.key": "--key", "spec.taint": "--preset and --key", "spec": "--architectures"}


class TaintConfiguration(msgspec.Struct, frozen=True):
    """The configuration in force, and what the cluster has."""

    settings: TaintSettings
    """With nodes that ``bootstrap`` holds back counted as managed."""
    source: Source
    document: Document
    """The object that says so, for a cluster that is to get it."""
    served: bool
    """The cluster has the kind ArchitectureTaints."""
    live: ArchitectureTaints | None = None
    """The cluster's object, if there is one."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody should know who reads a plan of it."""
        notes = [f"not used: {problem}" for problem in self.settings.problems]
        if self.source == "defaults":
            notes.append("the cluster has no ArchitectureTaints, and no flag describes one: assuming the defaults")
        if self.settings.state != "active":
            notes.append(f"spec.state is {self.settings.state}: nothing is tainted, and nothing gets tolerations")
        return tuple(notes)


class FlagConfiguration(msgspec.Struct, frozen=True):
    """What the command line says of a configuration; nothing, if the cluster's object is to count."""

    taken: ArchitectureTaints | None = None
    source: Source = "defaults"


def given(flags: ConfigurationFlags) -> FlagConfiguration:
    """From a file, or from flags. ``UsageError`` for what the cluster would refuse."""
    described = from_flags(flags)
    if flags.config is not None:
        return FlagConfiguration(read_taints(flags.config), "file")
    return FlagConfiguration(described, "flags") if described is not None else FlagConfiguration()


async def configured(client: Client, asked: FlagConfiguration) -> TaintConfiguration:
    """The configuration in force. ``UsageError`` for flags where the cluster has an object."""
    live, served = await _live(client)
    if asked.source == "flags" and live is not None:
        raise UsageError(
            f"the cluster has an {ARCHITECTURE_TAINTS.kind} named {SINGLETON}, whose settings count; change them "
            "there, or give --config with a file"
        )
    if asked.taken is not None:
        return _configured(asked.taken, asked.source, served, live)
    if live is not None:
        return _configured(live, "cluster", served, live)
    return _configured(_object({}), "defaults", served, None)


def from_flags(flags: ConfigurationFlags) -> ArchitectureTaints | None:
    """The object that the flags describe; None if there are none. ``UsageError`` names the flag that is wrong."""
    taint: Document = {}
    if flags.preset is not None or flags.key is not None:
        taint["preset"] = flags.preset or "custom"
    if flags.key is not None:
        taint["key"] = flags.key
    spec: Document = {
        "mode": flags.mode,
        "primaryArchitectures": _architectures("--primary", flags.primary),
        "architectures": _architectures("--architectures", flags.architectures),
        "taint": taint or None,
    }
    spec = {name: value for name, value in spec.items() if value is not None}
    if flags.config is not None and spec:
        raise UsageError(
            "--config has the whole configuration; it cannot be combined with --mode, --key and their like"
        )
    return _object(spec) if spec else None


def _object(spec: Document) -> ArchitectureTaints:
    try:
        return validated(
            {
                "apiVersion": ARCHITECTURE_TAINTS.api_version,
                "kind": ARCHITECTURE_TAINTS.kind,
                "metadata": {"name": SINGLETON},
                "spec": spec,
            }
        )
    except InvalidTaintsConfiguration as error:
        said = "; ".join(f"{_HINTS.get(each.field, each.field)}: {each.reason}" for each in error.problems)
        raise UsageError(said) from None


def _architectures(flag: str, given: Iterable[str] | None) -> list[str] | None:
    if given is None:
        return None
    named = [word.strip() for text in given for word in text.split(",") if word.strip()]
    found = list(dict.fromkeys(map(normal_architecture, named)))
    for name in found:
        if name not in KNOWN_ARCHITECTURES:
            raise UsageError(f"{flag} {name}: no such architecture; known are {', '.join(sorted(KNOWN_ARCHITECTURES))}")
    return found


def _configured(
    taken: ArchitectureTaints, source: Source, served: bool, live: ArchitectureTaints | None
) -> TaintConfiguration:
    spec = released(taken.spec)
    document = {
        "apiVersion": ARCHITECTURE_TAINTS.api_version,
        "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": SINGLETON},
        "spec": without_defaults(TAINT_SETTINGS, spec),
    }
    return TaintConfiguration(TaintSettings.of(spec), source, document, served, live)


async def _live(client: Client) -> tuple[ArchitectureTaints | None, bool]:
    """The cluster's object, and whether the cluster has the kind."""
    served = ARCHITECTURE_TAINTS in await client.discover(ARCHITECTURE_TAINTS.group)
    if not served:
        return None, False
    try:
        return await client.get(ARCHITECTURE_TAINTS, SINGLETON, type=ArchitectureTaints), True
    except NotFound:
        return None, True
