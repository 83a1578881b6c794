"""Parts of messages that these rules share: platform sets, which image lacks what, and the value at fault.

Pure.
"""

from collections.abc import Iterable

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets
from polyarch.manifests.lint.facts import PodFacts
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import SupportedImage, listed, texts
from polyarch.platforms import NodePlatform


def platform_sets(facts: PodFacts, *, missing: Iterable[NodePlatform] = ()) -> PlatformSets:
    supported = () if facts.platforms.is_everything else texts(facts.platforms)
    return PlatformSets(texts(facts.admitted), supported, texts(facts.excess), texts(missing))


def shortfalls(facts: PodFacts, wanted: Iterable[NodePlatform]) -> tuple[str, tuple[str, ...]]:
    """Which images lack some of the wanted platforms, as the second half of a sentence and by name."""
    wanted = frozenset(wanted)
    lacking = {
        image.name: f"{image.name} has {in_words(image)}"
        for image, platforms in facts.supported.constraining
        if any(each not in platforms for each in wanted)
    }
    if not lacking:
        return f"spec.os.name is {facts.supported.os_name}", ()
    return "; ".join(lacking.values()), tuple(lacking)


def in_words(image: SupportedImage) -> str:
    return f"only {listed(image.platforms)}" if image.platforms else "no platform"


def supported_architectures(facts: PodFacts) -> str:
    if facts.platforms.is_everything:
        return "the architectures meant"
    return ", ".join(facts.platforms.architectures())


def architecture_place(facts: PodFacts, excess: Iterable[NodePlatform]) -> tuple[Node, str]:
    """The value that names an excess architecture; else the first architecture constraint."""
    blamed = {each.architecture for each in excess} - {each.architecture for each in facts.admitted - facts.excess}
    for clause in facts.architecture_expressions:
        for place, (text, node) in enumerate(zip(clause.values, clause.value_nodes, strict=True)):
            if clause.operator == "In" and sets.meant_architecture(text) in blamed:
                return node, f"{clause.pointer}/values/{place}"
    for entry in facts.selector_architectures:
        return entry.value_node, entry.pointer
    for clause in facts.architecture_expressions:
        return clause.node, clause.pointer
    return facts.pod_spec.node, facts.pod_spec.pointer
