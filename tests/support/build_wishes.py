"""Small facts about builds, for tests: a wish, nodes, executions, and answers of registries."""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import ArchitectureKey, Architectures, ImageBuildSpec, Output, Source
from polyarch.builds.facts.build_facts import BuildFacts, BuildRequest, ChildRecord, Execution, NodeFacts
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.platforms import Platform

NOW = 1_700_000_000.0
DAY = 86_400.0
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
BASE = "quay.io/team/base:1"


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def node(name: str, architecture: str = "amd64", *, age: float = DAY, **members: Any) -> NodeFacts:
    """A Ready worker."""
    usual: dict[str, Any] = {"operating_system": "linux", "ready": True, "user_namespaces": frozenset({""})}
    return NodeFacts(name=name, architecture=architecture, created=NOW - age, **{**usual, **members})


def wish(*, status: Mapping[str, Any] | None = None, current: str = "", **spec: Any) -> BuildRequest:
    """An ImageBuild ``team/web`` from one base; ``spec`` are members of its spec, in Python's spelling."""
    usual: dict[str, Any] = {
        "source": Source(containerfile=f"FROM {BASE}\n"),
        "output": Output(repository="registry.example.com/team/web"),
    }
    return BuildRequest(
        kind="ImageBuild",
        namespace="team",
        name="web",
        uid="uid-web",
        generation=1,
        spec=ImageBuildSpec(**{**usual, **spec}),
        status=status or {},
        current=current,
    )


def wanted(**members: Any) -> dict[str, Any]:
    """``spec.architectures``, to be given to :func:`wish`; ``list`` may be written as it is in the object."""
    return {"architectures": msgspec.convert(members, Architectures)}


def execution(
    name: str, *architectures: str, phase: str = "Succeeded", owner: str = "uid-web", lacking: str = "", **members: Any
) -> Execution:
    """A run for these architectures; if it succeeded, with a child of each but the one that is ``lacking``."""
    made = [each for each in architectures if phase == "Succeeded" and each != lacking]
    return Execution(
        namespace="team",
        name=name,
        owner_uid=owner,
        phase=phase,  # type: ignore[arg-type]
        keys=tuple(ArchitectureKey(each, f"key-{each}") for each in architectures),
        children=tuple(ChildRecord(architecture=each, phase="Built", digest=digest("1")) for each in made),
        **members,
    )


def facts(*nodes: NodeFacts, of: BuildRequest | None = None, now: float = NOW, **members: Any) -> BuildFacts:
    return BuildFacts(now=now, request=of or wish(), nodes=nodes, **members)


def index(reference: str, *platforms: str, top: str = "f", **children: str) -> Inspection:
    """An index with these platforms, and with these children: architecture → letter of the digest."""
    entries = [Entry(Platform.parse(each), "") for each in platforms]
    entries += [Entry(Platform.of("linux", name), digest(letter)) for name, letter in children.items()]
    return Inspection(parse(reference), Status.RESOLVED, "index", digest=digest(top), entries=tuple(entries))


def image(reference: str, architecture: str, letter: str = "e") -> Inspection:
    """One image that is no index."""
    entries = (Entry(Platform.of("linux", architecture), ""),)
    return Inspection(parse(reference), Status.RESOLVED, "image", digest=digest(letter), entries=entries)


def failed(reference: str, code: str, **members: Any) -> Inspection:
    """No answer."""
    return Inspection(parse(reference), Status.ERROR, error=InspectionError.of(code, "the server says so", **members))
