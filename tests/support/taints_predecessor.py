"""What archaware-controller leaves in a cluster: its shapes, and where its answers are wrong.

Written down from its source (github.com/learnitall/archaware-controller, MIT): the Go module proxy does not serve the
module, so it is not run here. It adds one taint to every node and one toleration for each architecture to every pod,
and nothing else: no annotation, no label, no event.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

KEY: Final = "supported-arch"
EFFECT: Final = "NoSchedule"
Json = dict[str, Any]


def taint(architecture: str) -> Json:
    """As it appends it to ``spec.taints`` of a node."""
    return {"key": KEY, "value": architecture, "effect": EFFECT}


def toleration(architecture: str) -> Json:
    """As it appends it to ``spec.tolerations`` of a pod: without operator, which means Equal."""
    return {"key": KEY, "value": architecture, "effect": EFFECT}


class Case(NamedTuple):
    """Images of one pod, as the sandbox's registry is told of them, and the tolerations that come of it."""

    name: str
    containers: tuple[Mapping[str, Any], ...]
    left: tuple[str, ...]
    """Architectures that it left tolerations for."""
    right: tuple[str, ...]
    """Those that the pod can run on."""
    why: str = ""
    """What it does differently."""
    init_containers: tuple[Mapping[str, Any], ...] = ()

    @property
    def extra(self) -> tuple[str, ...]:
        """Tolerations that only recreation of the pod removes."""
        return tuple(sorted(set(self.left) - set(self.right)))

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.right) - set(self.left)))


def index(*platforms: str, **more: Any) -> Json:
    return {"platforms": [f"linux/{each}" if "/" not in each else each for each in platforms], **more}


CONSISTENT: Final = (
    Case("one image", (index("amd64", "arm64"),), ("amd64", "arm64"), ("amd64", "arm64")),
    Case(
        "two images",
        (index("amd64", "arm64"), index("arm64", "amd64", "ppc64le")),
        ("arm64", "amd64"),
        ("amd64", "arm64"),
    ),
    Case("a single-platform image", (index("arm64", kind="image"),), ("arm64",), ("arm64",)),
    Case(
        "two variants of an architecture",
        (index("linux/arm/v6", "linux/arm/v7", "amd64"),),
        ("amd64", "arm"),
        ("amd64", "arm"),
        why="it counts variants twice, never finds the pod complete, and sends a PUT for every event of the pod",
    ),
)
"""Pods that it leaves as they should be: taking over writes nothing."""

WRONG: Final = (
    Case(
        "three images without a common architecture",
        (index("amd64", "arm64"), index("amd64", "s390x"), index("arm64", "s390x")),
        ("amd64", "arm64"),
        (),
        why="it takes the union of the intersections with the first image",
    ),
    Case(
        "an init container for one architecture",
        (index("amd64", "arm64"),),
        ("amd64", "arm64"),
        ("amd64",),
        why="it does not look at init containers",
        init_containers=(index("amd64"),),
    ),
    Case(
        "provenance in the index",
        (index("amd64", "arm64", attestations=True),),
        ("amd64", "arm64", "unknown"),
        ("amd64", "arm64"),
        why="it takes the entry of an attestation for an architecture",
    ),
    Case(
        "an image of two systems",
        (index("windows/amd64", "arm64"),),
        ("amd64", "arm64"),
        ("arm64",),
        why="it does not look at the operating system",
    ),
    Case(
        "an index entry without platform",
        (index("amd64", "arm64", withoutPlatform=["linux/arm64"]),),
        (),
        ("amd64", "arm64"),
        why="it dereferences the missing platform and ends",
    ),
)


def extra_tolerations(cases: Iterable[Case] = WRONG) -> dict[str, tuple[str, ...]]:
    """By case: what a plan has to name."""
    return {case.name: case.extra for case in cases if case.extra}
