"""MA115: ``spec.os.name`` contradicts the images or the node constraints.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import listed
from polyarch.platforms import NodePlatform

RULE = Rule(
    id="MA115",
    severity=Severity.ERROR,
    title="spec.os.name contradicts the images or the node constraints",
    meaning="The kubelet rejects a pod whose spec.os.name is not the operating system of its node.",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    system = facts.supported.os_name
    if not system:
        return
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
        reasons.append(f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no platform for it")
    if facts.admitted and not _admits(facts, system):
        reasons.append(f"its node constraints admit only {listed(facts.admitted)}")
    if node is not None and reasons:
        yield Draft(
            rule=RULE,
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
