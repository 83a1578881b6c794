"""What runs and what would run next: where the two differ in platforms (RP-004, RP-025).

A pod's ``imageID`` says what it runs, the reference of the template what its successor would run. A tag that was pushed
again in between makes the two differ, and a drained node shows it at the worst time. Pure.
"""

from collections.abc import Iterable, Iterator

from polyarch.images.pod_images import Verdict as Contribution
from polyarch.oci.answer import Inspection, Status
from polyarch.oci.reference import InvalidReference, parse
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Drift, NodeDrift
from polyarch.reports.facts.cluster import Facts, WorkloadFact, target_name
from polyarch.reports.facts.readings import Answers
from polyarch.reports.judging.verdicts import Judged

_PREFIXES = ("docker-pullable://", "docker://")


def running_reference(image_id: str) -> str:
    """The reference of what runs, ``quay.io/acme/web@sha256:…``; empty if the ``imageID`` names no repository."""
    for prefix in _PREFIXES:
        image_id = image_id.removeprefix(prefix)
    if "@" not in image_id:
        return ""
    try:
        return parse(image_id).canonical
    except InvalidReference:
        return ""


def to_ask(facts: Facts, answers: Answers) -> tuple[str, ...]:
    """References that run and are not what the template's image is now: each has to be asked about, too."""
    found = {
        running
        for workload in facts.workloads
        for _, _, running, answer in _running(workload, answers)
        if running and not _is_it(running, answer) and running not in answers.of(workload.namespace)
    }
    return tuple(sorted(found))


def drift_of(workload: WorkloadFact, answers: Answers) -> tuple[Drift, ...]:
    """Each container and image that runs with other platforms than the next pod would have."""
    known = answers.of(workload.namespace)
    found = {}
    for container, image, running, answer in _running(workload, answers):
        if not running or _is_it(running, answer):
            continue
        now, then = _platforms(known.get(running)), _platforms(answer)
        if now is not None and then is not None and now != then:
            found[container, running] = Drift(container, running, image, now, then)
    return tuple(found[key] for key in sorted(found))


def node_drift(judged: Iterable[Judged], facts: Facts) -> tuple[NodeDrift, ...]:
    """By node: the pods that run on it although it could not run their successors."""
    nodes = {node.name: node for node in facts.nodes}
    found: dict[str, dict[str, str]] = {}
    for each in judged:
        for pod in each.workload.pods:
            node = nodes.get(pod.node)
            if node is None:
                continue
            lacking = each.lacking(node.platform)
            if lacking:
                name = f"{each.workload.namespace}/{pod.name}"
                images = ", ".join(lacking)
                found.setdefault(node.name, {})[name] = (
                    f"{name} would not start on {node.name} again: {images} has no {target_name(node.platform)}"
                )
    return tuple(
        NodeDrift(
            name, target_name(nodes[name].platform), tuple(sorted(pods)), tuple(pods[pod] for pod in sorted(pods))
        )
        for name, pods in sorted(found.items())
    )


def _running(workload: WorkloadFact, answers: Answers) -> Iterator[tuple[str, str, str, Inspection | None]]:
    """Container, image of the template, reference of what runs, and the answer for the template's image."""
    spec = workload.template.spec
    images = {each.name: each.image for each in (*(spec.containers or ()), *(spec.init_containers or ()))}
    known = answers.of(workload.namespace)
    seen = {(each.container, each.image_id) for pod in workload.pods for each in pod.running}
    for container, image_id in sorted(seen):
        image = images.get(container)
        if image is not None:
            yield container, image, running_reference(image_id), known.get(image)


def _is_it(running: str, answer: Inspection | None) -> bool:
    """The running digest is that of the index, or of one of its manifests; without one to compare with it counts so."""
    if answer is None or not answer.digest:
        return True
    digest = running.rpartition("@")[2]
    return digest == answer.digest or any(digest == each.digest for each in answer.entries)


def _platforms(answer: Inspection | None) -> tuple[str, ...] | None:
    """As targets are spelled; None if nobody knows, or if it fits every platform."""
    if answer is None or answer.status is not Status.RESOLVED:
        return None
    return tuple(map(target_name, answer.node_platforms))


def misplaced(judged: Iterable[Judged], facts: Facts, answers: Answers) -> Iterator[tuple[str, str]]:
    """Pods on nodes that what they run does not support: the pod and one sentence (RP-015)."""
    nodes = {node.name: node for node in facts.nodes}
    for each in judged:
        if not each.workload.pods:
            continue
        known = answers.of(each.workload.namespace)
        by_container = _findings_by_container(each)
        for pod in each.workload.pods:
            node = nodes.get(pod.node)
            if node is None:
                continue
            for running in pod.running:
                actual = known.get(running_reference(running.image_id))
                platforms = actual.node_platforms if actual is not None and actual.constrains else None
                if platforms is None:
                    platforms = by_container.get(running.container)
                if platforms is not None and node.platform not in platforms:
                    name = f"{each.workload.namespace}/{pod.name}"
                    yield name, f"{name} is on {node.name} ({target_name(node.platform)})"
                    break


def _findings_by_container(judged: Judged) -> dict[str, tuple[NodePlatform, ...]]:
    """The platforms of the template's images by container, where they restrict."""
    spec = judged.workload.template.spec
    platforms = {each.text: each.platforms for each in judged.images if each.verdict is Contribution.CONSTRAINS}
    return {
        container.name: platforms[container.image]
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        if container.image in platforms
    }
