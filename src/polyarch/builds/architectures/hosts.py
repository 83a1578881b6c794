"""Where the image of one architecture is built: on which nodes, natively or emulated, and whether in a user namespace.

Read from the nodes as they are now (BD-141, BD-152, BD-215): a node is *available* if it is Ready and not cordoned, and
*fits* if the Job's selector matches it and the Job's tolerations cover its taints.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from polyarch.builds.api.resources import ArchitectureScheduling
from polyarch.builds.api.settings import BuiltBy, emulation_hosts
from polyarch.builds.architectures.selection import LINUX
from polyarch.builds.facts.facts import Facts, NodeFacts
from polyarch.tolerations import REPELS, Taint, Toleration, is_tolerated


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where an architecture is built."""

    execution: BuiltBy
    architecture: str
    """Of the nodes that its Job runs on."""
    why: str = ""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The security profile that ``Auto`` stands for, and why (BD-152)."""

    name: Literal["UserNamespace", "Rootless"]
    why: str


def host_of(facts: Facts, architecture: str) -> Host:
    """By the strategy of the spec (BD-141). ``Native`` never builds elsewhere, whatever the nodes are."""
    spec = facts.wish.spec
    native = Host(execution="Native", architecture=architecture, why=f"nodes of {architecture} build it")
    if spec.strategy == "Native" or (
        spec.strategy == "PreferNative" and _is_possible(facts, architecture, architecture)
    ):
        return native
    hosts = emulation_hosts(spec)
    there = next((each for each in hosts if _is_possible(facts, architecture, each)), None)
    if there is None and spec.strategy == "PreferNative":
        why = f"no node of {architecture} is available, and none of {', '.join(hosts)} to emulate it: it waits"
        return Host(execution="Native", architecture=architecture, why=why)
    host = there or hosts[0]
    if host == architecture:
        return native
    because = "the strategy is Emulated" if spec.strategy == "Emulated" else f"no node of {architecture} is available"
    why = f"{because}; {host} is the first of emulation.hosts with a node for it"
    if there is None:
        why = f"{because}; no host of emulation.hosts has a node for it, so it waits for {host}"
    return Host(execution="Emulated", architecture=host, why=why)


def is_available(facts: Facts, architecture: str) -> bool:
    """A Ready, schedulable linux node of the architecture exists, whether a Job fits there or not (BD-215)."""
    return any(_available(facts.nodes, architecture))


def auto_profile(facts: Facts, architecture: str, host: str) -> Profile:
    """What ``securityProfile: Auto`` is for the Job of ``architecture`` on nodes of ``host``: never Privileged."""
    named = scheduling_of(facts, architecture).runtime_class_name
    handler = facts.runtime_handlers.get(named) or named
    nodes = [each for each in _linux(facts.nodes, host) if each.schedulable]
    lacking = [each for each in nodes if handler not in each.user_namespaces]
    runtime = f"runtime handler {handler}" if handler else "the default runtime handler"
    if lacking:
        oldest = min(lacking, key=lambda each: (each.created, each.name))
        return Profile(name="Rootless", why=f"{runtime} of node {oldest.name} reports no user namespaces")
    if nodes:
        return Profile(name="UserNamespace", why=f"{runtime} of every {host} node reports user namespaces")
    return Profile(name="UserNamespace", why=f"there is no {host} node yet that could be without user namespaces")


def scheduling_of(facts: Facts, architecture: str) -> ArchitectureScheduling:
    """``scheduling.perArchitecture`` of the architecture, empty if it has none."""
    named = facts.wish.spec.scheduling.per_architecture or ()
    return next((each for each in named if each.architecture == architecture), ArchitectureScheduling())


def _is_possible(facts: Facts, architecture: str, host: str) -> bool:
    scheduling = scheduling_of(facts, architecture)
    selector = scheduling.node_selector or {}
    tolerations = [msgspec.convert(each, Toleration) for each in scheduling.tolerations or ()]
    return any(
        _selects(selector, node) and _covers(facts.settings.arch_taint_keys, host, tolerations, node)
        for node in _available(facts.nodes, host)
    )


def _available(nodes: Iterable[NodeFacts] | None, architecture: str) -> Iterator[NodeFacts]:
    return (each for each in _linux(nodes, architecture) if each.ready and each.schedulable)


def _linux(nodes: Iterable[NodeFacts] | None, architecture: str) -> Iterator[NodeFacts]:
    return (
        each
        for each in nodes or ()
        if each.operating_system == LINUX and each.architecture == architecture and not each.deleting
    )


def _selects(selector: Mapping[str, str], node: NodeFacts) -> bool:
    return all(node.labels.get(key) == value for key, value in selector.items())


def _covers(arch_keys: Iterable[str], host: str, tolerations: list[Toleration], node: NodeFacts) -> bool:
    """Jobs tolerate the architecture taints of their host (BD-140) and what the spec says."""
    known = frozenset(arch_keys)
    for key, value, effect in node.taints:
        if effect not in REPELS or (key in known and value == host):
            continue
        if not is_tolerated(Taint(key=key, value=value, effect=effect), tolerations):
            return False
    return True
