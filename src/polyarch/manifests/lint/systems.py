"""Operating systems: an architecture asked for without one (MA106), and ``spec.os.name`` against the rest (MA115).

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.architectures import architecture_place, platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.terms import add_systems, non_empty
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import listed
from polyarch.platforms import NodePlatform


def check(facts: PodFacts) -> Iterator[Draft]:
    """MA106 and MA115."""
    unsaid = facts.has_architectures and not facts.selector_systems and not facts.supported.neutral
    if unsaid and not facts.pod_spec.is_patch:
        terms = non_empty(facts)
        if not terms or not all(any(map(sets.is_os_constraint, term.expressions)) for term in terms):
            yield _without_system(facts)
    if facts.supported.os_name:
        yield from _contradicted(facts)


def _without_system(facts: PodFacts) -> Draft:
    platforms = facts.platforms
    systems = "linux" if platforms.is_everything or not platforms else ", ".join(platforms.systems())
    mixed = any(each.os != "linux" for each in facts.universe)
    node, where = architecture_place(facts, ())
    return Draft(
        rule="MA106",
        severity=Severity.WARNING if mixed else None,
        message=f"{facts.subject} asks for an architecture and for no operating system",
        hint=f"require kubernetes.io/os in {systems} besides",
        node=node,
        pointer=where,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: add_systems(facts)),
    )


def _contradicted(facts: PodFacts) -> Iterator[Draft]:
    system = facts.supported.os_name
    node = facts.pod_spec.os_name_node
    lacking = tuple(
        dict.fromkeys(
            image.name
            for image, platforms in facts.supported.constraining
            if platforms and system not in platforms.systems()
        )
    )
    reasons = []
    if lacking:
        reasons.append(f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no platform of it")
    if facts.admitted and not _admits(facts, system):
        reasons.append(f"its node constraints admit only {listed(facts.admitted)}")
    if node is not None and reasons:
        yield Draft(
            rule="MA115",
            message=f"{facts.subject} has spec.os.name {system}, but {' and '.join(reasons)}",
            hint="correct spec.os.name, or what contradicts it",
            node=node,
            pointer=f"{facts.pod_spec.pointer}/os/name",
            images=lacking,
            platforms=platform_sets(facts),
        )


def _admits(facts: PodFacts, system: str) -> bool:
    """Whether a node of the system could be admitted, also where the universe has none."""
    architectures = {each.architecture for each in facts.universe} | {"amd64"}
    return any(facts.constraints.admits(NodePlatform(system, architecture)) for architecture in architectures)
