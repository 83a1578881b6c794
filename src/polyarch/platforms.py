"""Platforms: what an image is built for, and what a node runs.

Registries, manifests and kubelets spell the same platform in many ways (``x86_64``, ``aarch64``, ``arm/v7``). All of
polyarch compares platforms after the normalisation in this module, so that every feature agrees on which are
equal. A *node platform* is the part that a node's labels can express: operating system and architecture.

Pure: no I/O, no clock, imports nothing of polyarch."""

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_
from typing import ClassVar, Literal, NamedTuple

import msgspec

KNOWN_ARCHITECTURES = frozenset(
    {
        "386",
        "amd64",
        "arm",
        "arm64",
        "loong64",
        "mips",
        "mipsle",
        "mips64",
        "mips64le",
        "ppc64",
        "ppc64le",
        "riscv64",
        "s390x",
        "wasm",
    }
)
"""Architectures that are accepted wherever somebody names one."""
ASSUMED_ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")
"""Architectures that nodes are taken to have where nobody can look at them, sorted."""
IMAGE_ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")
"""Architectures of polyarch's own image, sorted: where its processes can run."""
NodeArchitecture = Literal["amd64", "arm64", "ppc64le", "s390x", "riscv64", "loong64", "arm", "386"]
"""Architectures of Linux nodes that a PlacementPolicy may name, in the order of its schema."""
NodeSystem = Literal["linux", "windows"]
"""Operating systems of nodes that a PlacementPolicy may name."""
KNOWN_SYSTEMS = frozenset(
    {
        "aix",
        "android",
        "darwin",
        "dragonfly",
        "freebsd",
        "illumos",
        "ios",
        "js",
        "linux",
        "netbsd",
        "openbsd",
        "plan9",
        "solaris",
        "wasi",
        "wasip1",
        "wasip2",
        "windows",
    }
)
NODE_SYSTEMS = frozenset({"linux", "windows"})
"""Systems a Kubernetes node can run (label ``kubernetes.io/os``)."""

FOREIGN: dict[str, str] = {"amd64": "386"}
"""Architectures of nodes, and the other one whose programs all of them run and containerd pulls for them."""
LEGACY: dict[str, str] = {"arm64": "arm"}
"""The same, where containerd pulls the image but only some processors run it."""

# Other spellings of an architecture, with the variant that they imply if none is stated.
_ALIASES: dict[str, tuple[str, str]] = {
    "x86_64": ("amd64", ""),
    "x86-64": ("amd64", ""),
    "aarch64": ("arm64", ""),
    "i386": ("386", ""),
    "i686": ("386", ""),
    "x86": ("386", ""),
    "ppc64el": ("ppc64le", ""),
    "wasm32": ("wasm", ""),
    "wasm64": ("wasm", ""),
    "loongarch64": ("loong64", ""),
    "armhf": ("arm", "v7"),
    "armv7": ("arm", "v7"),
    "armv7l": ("arm", "v7"),
    "armel": ("arm", "v6"),
    "armv6": ("arm", "v6"),
    "armv6l": ("arm", "v6"),
}
_SYSTEM_ALIASES = {"macos": "darwin"}
# An architecture's default variant is dropped; only bare `arm` gets one, v7.
_VARIANTS: dict[tuple[str, str], str] = {
    ("amd64", "1"): "",
    ("amd64", "v1"): "",
    ("arm64", "8"): "",
    ("arm64", "v8"): "",
    ("arm", ""): "v7",
    ("arm", "5"): "v5",
    ("arm", "6"): "v6",
    ("arm", "7"): "v7",
    ("arm", "8"): "v8",
}
_ARM_VARIANTS = ("v5", "v6", "v7", "v8")
_SPECIAL_VARIANTS = {
    "386": re.compile(""),
    "amd64": re.compile("(v[234])?"),
    "arm": re.compile("v[5-8]"),
    "arm64": re.compile(r"(v8\.[1-9]|v9(\.[0-9])?)?"),
}
"""Variants of which there are processors; of other architectures any may be."""
_PART = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_SYSTEM_WITH_VERSION = re.compile(r"([A-Za-z0-9_.-]+)\(([A-Za-z0-9_.-]+)\)", re.ASCII)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


class InvalidPlatform(ValueError):  # noqa: N818 - named for the problem
    """The text is not a platform; the message names the wrong part and the expected form."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(
            f"invalid platform {_shown(text)}: {problem}; write OS/ARCH[/VARIANT], for example linux/arm64"
        )
        self.text = text
        self.problem = problem


class NodePlatform(NamedTuple):
    """Operating system and architecture: a node's labels ``kubernetes.io/os`` and ``kubernetes.io/arch``."""

    os: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"

    @property
    def short_name(self) -> str:
        """``arm64`` for Linux, ``windows/amd64`` for other systems; ``unknown`` without an architecture."""
        if not self.architecture:
            return "unknown"
        return self.architecture if self.os == "linux" else str(self)


class Platform(msgspec.Struct, frozen=True, order=True, gc=False):
    """The platform of one image manifest. Create it with :meth:`of` or :meth:`parse`; equal platforms compare equal."""

    os: str
    architecture: str
    variant: str = ""
    os_version: str = ""
    os_features: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, os: str, architecture: str, variant: str = "", os_version: str = "", os_features: Iterable[str] = ()
    ) -> "Platform":
        """The normalised platform; unknown systems, architectures and variants are kept."""
        architecture, variant = _architecture(architecture, variant)
        return cls(
            os=normal_system(os),
            architecture=architecture,
            variant=variant,
            os_version=os_version.strip().lower() if os_version else "",
            os_features=tuple(sorted({feature.strip().lower() for feature in os_features})) if os_features else (),
        )

    @classmethod
    def parse(cls, text: str) -> "Platform":
        """Parse ``os/arch[/variant]``, ``os(version)/arch[/variant]``, or an architecture alone.

        Raises :class:`InvalidPlatform` for anything else.
        """
        parts = [part.strip() for part in text.split("/")]
        if len(parts) == 1:
            return cls._of_word(text, parts[0])
        if len(parts) > 3:
            raise InvalidPlatform(
                text, f"{len(parts)} parts where at most three are possible, too many from {_shown(parts[3])}"
            )
        system, version = parts[0], ""
        if match := _SYSTEM_WITH_VERSION.fullmatch(system):
            system, version = match[1], match[2]
        for name, part in zip(("system", "architecture", "variant"), (system, *parts[1:]), strict=False):
            if not part:
                raise InvalidPlatform(text, f"the {name} is empty")
            if not _PART.fullmatch(part):
                raise InvalidPlatform(text, f"the {name} {_shown(part)} has a character that is not allowed")
        if is_architecture(system):
            raise InvalidPlatform(text, f"{_shown(system)} is an architecture, but the system comes first")
        return cls.of(system, parts[1], parts[2] if len(parts) == 3 else "", version)

    @classmethod
    def parse_node(cls, text: str) -> NodePlatform:
        """The same for a platform of nodes, which have no variant and no version: what says one raises, too."""
        platform = cls.parse(text)
        if platform.os_version or platform.variant != cls.of(platform.os, platform.architecture).variant:
            raise InvalidPlatform(text, "platforms of nodes are compared, which have no variant and no version")
        return platform.node

    @classmethod
    def _of_word(cls, text: str, word: str) -> "Platform":
        if is_architecture(word):
            return cls.of("linux", word)
        if not word:
            raise InvalidPlatform(text, "it is empty")
        if normal_system(word) in KNOWN_SYSTEMS:
            raise InvalidPlatform(text, f"{_shown(word)} is a system without an architecture")
        raise InvalidPlatform(text, f"{_shown(word)} is not a known architecture")

    @property
    def node(self) -> NodePlatform:
        """Operating system and architecture, also for systems that nodes cannot run."""
        return NodePlatform(self.os, self.architecture)

    @property
    def plain(self) -> "Platform":
        """Without variant, version and features: no runtime looks at those of a manifest that is no index."""
        return Platform.of(self.os, self.architecture)

    @property
    def is_wasm(self) -> bool:
        """WebAssembly, which a shim runs on nodes of every architecture."""
        return self.architecture == "wasm" or self.os.startswith("wasi")

    @property
    def is_usual(self) -> bool:
        """A node's runtime takes it without being told to: of variants it knows those of 32-bit ARM only, which are all
        that such nodes differ in, and on Linux no features.

        Source: ``Only(DefaultSpec())`` of containerd's package platforms; containers/image, as CRI-O has it, agrees.
        """
        if self.variant not in (_ARM_VARIANTS if self.architecture == "arm" else ("",)):
            return False
        return not self.os_features or self.os != "linux"

    @property
    def has_processor(self) -> bool:
        """Whether there are processors of its variant."""
        variants = _SPECIAL_VARIANTS.get(self.architecture)
        return variants is None or bool(variants.fullmatch(self.variant))

    @property
    def known_system(self) -> bool:
        return self.os in KNOWN_SYSTEMS

    @property
    def known_architecture(self) -> bool:
        return self.architecture in KNOWN_ARCHITECTURES

    def __str__(self) -> str:
        system = f"{self.os}({self.os_version})" if self.os_version else self.os
        return f"{system}/{self.architecture}/{self.variant}" if self.variant else f"{system}/{self.architecture}"


class PlatformSet(msgspec.Struct, frozen=True, gc=False):
    """A set of node platforms, or the set of all, which is the answer for images that fit any platform.

    The set of all cannot be listed: check ``is_everything`` before iterating.
    """

    EVERYTHING: ClassVar["PlatformSet"]
    members: frozenset[NodePlatform] | None

    @classmethod
    def of(cls, platforms: Iterable[NodePlatform]) -> "PlatformSet":
        return cls(frozenset(platforms))

    @property
    def is_everything(self) -> bool:
        return self.members is None

    def architectures(self, os: str | None = None) -> tuple[str, ...]:
        """The architectures in byte order, of one operating system or of all."""
        return tuple(sorted({pair.architecture for pair in self._listed() if os is None or pair.os == os}))

    def systems(self) -> tuple[str, ...]:
        return tuple(sorted({pair.os for pair in self._listed()}))

    def _listed(self) -> frozenset[NodePlatform]:
        if self.members is None:
            raise TypeError("the set of all platforms cannot be listed; check is_everything first")
        return self.members

    def having(self, more: Iterable[NodePlatform]) -> "PlatformSet":
        """The set with these as well."""
        return self if self.members is None else PlatformSet(self.members.union(more))

    def __and__(self, other: "PlatformSet") -> "PlatformSet":
        if self.members is None:
            return other
        if other.members is None:
            return self
        return PlatformSet(self.members & other.members)

    def __iter__(self) -> Iterator[NodePlatform]:
        return iter(sorted(self._listed()))

    def __bool__(self) -> bool:
        return self.members is None or bool(self.members)

    def __contains__(self, platform: object) -> bool:
        return self.members is None or platform in self.members

    def __str__(self) -> str:
        return "everything" if self.members is None else ", ".join(map(str, self)) or "nothing"


PlatformSet.EVERYTHING = PlatformSet(None)


def node_platforms(platforms: Iterable[Platform]) -> tuple[NodePlatform, ...]:
    """The platforms of nodes that run an image with these, without duplicates, sorted.

    A variant that no runtime takes by itself (amd64/v3) counts only if the image has nothing else, and if there are
    such processors. Nodes of amd64 run 386 as well. An architecture that is not a valid label value (empty, too long,
    odd characters) is left out, and so is WebAssembly.
    """
    possible = [each for each in platforms if each.os in NODE_SYSTEMS and not each.is_wasm]
    usual = {each.node for each in possible if each.is_usual}
    usual |= {
        NodePlatform(pair.os, node) for pair in usual for node, runs in FOREIGN.items() if runs == pair.architecture
    }
    pairs = usual or _special(possible)
    return tuple(sorted(pair for pair in pairs if _LABEL_VALUE.fullmatch(pair.architecture)))


def _special(platforms: Iterable[Platform]) -> set[NodePlatform]:
    """The nodes whose runtime may have been told to take one of these."""
    return {each.node for each in platforms if each.has_processor}


CRI_O: str = "cri-o"
"""How ``status.nodeInfo.containerRuntimeVersion`` of a node begins that has CRI-O."""
_LITERAL_VARIANTS: dict[str, tuple[str, ...]] = {"arm": ("", "v5", "v6", "v7"), "arm64": ("", "v8")}


class NodeRuntimes(msgspec.Struct, frozen=True, gc=False):
    """Which platforms of nodes have CRI-O, whose choice from an index differs from containerd's."""

    crio: frozenset[NodePlatform] = frozenset()
    """All of their nodes have it."""
    mixed: frozenset[NodePlatform] = frozenset()
    """Some of their nodes have it."""
    is_known: bool = False

    @classmethod
    def of(cls, nodes: Iterable[tuple[NodePlatform, str]]) -> "NodeRuntimes":
        """``nodes``: the platform of each, and its ``containerRuntimeVersion``."""
        found: dict[NodePlatform, set[bool]] = {}
        for platform, runtime in nodes:
            found.setdefault(platform, set()).add(is_crio(runtime))
        return cls(
            frozenset(platform for platform, has in found.items() if has == {True}),
            frozenset(platform for platform, has in found.items() if len(has) > 1),
            is_known=True,
        )


NO_RUNTIMES = NodeRuntimes()
"""Nothing is known of them."""


def is_crio(runtime: str) -> bool:
    """Whether a node's ``containerRuntimeVersion`` is that of CRI-O."""
    return runtime.partition(":")[0] == CRI_O


def crio_platforms(stated: Iterable[tuple[Platform, str]]) -> tuple[NodePlatform, ...]:
    """The same as :func:`node_platforms` for nodes that have CRI-O, which takes an entry of an index only if it spells
    the node's own architecture: no other spelling, no programs of another architecture, and of variants those that
    arm and arm64 are known to have. Features of an operating system are not looked at.

    ``stated``: each platform, and how its author wrote it, where that differs. Source: ``WantedPlatforms`` and
    ``MatchesPlatform`` of containers/image, ``internal/pkg/platform``.
    """
    possible = [(each, text) for each, text in stated if each.os in NODE_SYSTEMS and not each.is_wasm]
    taken = {each.node for each, text in possible if _is_literal(each, text)}
    if not taken and not any(each.is_usual for each, _ in possible):
        taken = _special(each for each, _ in possible)
    return tuple(sorted(pair for pair in taken if _LABEL_VALUE.fullmatch(pair.architecture)))


def _is_literal(platform: Platform, text: str) -> bool:
    written = text.split("/") if text else [*platform.node, platform.variant]
    system, architecture, variant, *_ = [*written, ""]
    return (system, architecture) == platform.node and variant in _LITERAL_VARIANTS.get(architecture, ("",))


def foreign_architectures(platforms: Iterable[Platform]) -> tuple[str, ...]:
    """The architectures of :func:`node_platforms` that the image itself does not have, sorted."""
    found = list(platforms)
    own = {each.node for each in found}
    return tuple(sorted({pair.architecture for pair in node_platforms(found) if pair not in own}))


def shared_platforms(sets: Iterable[PlatformSet], legacy: Iterable[PlatformSet] | None = None) -> PlatformSet:
    """The platforms of the nodes that run images with all of these: the intersection.

    Where that leaves nothing but 32-bit ARM, which hardly a node is, nodes of arm64 count as well: containerd pulls
    such images for them, and most of their processors run them. ``legacy``: the sets with these nodes, where the
    caller knows more of them.
    """
    given = list(sets)
    common = reduce(and_, given, PlatformSet.EVERYTHING)
    if common.members is None or any(pair.architecture not in LEGACY.values() for pair in common.members):
        return common
    if legacy is None:
        legacy = (each.having(legacy_platforms(each.members or ())) for each in given)
    return reduce(and_, legacy, PlatformSet.EVERYTHING) or common


def legacy_platforms(platforms: Iterable[NodePlatform]) -> tuple[NodePlatform, ...]:
    """The nodes that most often run programs of one of these platforms, though it is not their own; sorted."""
    found = {
        NodePlatform(pair.os, node) for pair in platforms for node, runs in LEGACY.items() if runs == pair.architecture
    }
    return tuple(sorted(found))


def are_wasm(platforms: Iterable[Platform]) -> bool:
    """Whether all of these, and at least one, are WebAssembly."""
    found = list(platforms)
    return bool(found) and all(each.is_wasm for each in found)


def is_architecture(word: str) -> bool:
    """Whether the word is a known architecture or another spelling of one."""
    word = word.strip().lower()
    return word in KNOWN_ARCHITECTURES or word in _ALIASES


def normal_system(os: str) -> str:
    os = os.strip().lower()
    return _SYSTEM_ALIASES.get(os, os)


def normal_architecture(architecture: str) -> str:
    """The architecture as node labels spell it (``x86_64`` → ``amd64``), without its variant."""
    return _architecture(architecture, "")[0]


def _architecture(architecture: str, variant: str) -> tuple[str, str]:
    architecture, variant = architecture.strip().lower(), variant.strip().lower()
    alias = _ALIASES.get(architecture)
    if alias is not None:
        architecture, variant = alias[0], variant or alias[1]
        if architecture == "386":
            variant = ""  # as in containerd
    return architecture, _VARIANTS.get((architecture, variant), variant)


def _shown(text: str, limit: int = 80) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")
