"""The part of an explanation that is about nodes: which of them take the pod, and why the others do not."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from polyarch.cli.explain.pods import Configuration, GivenPod
from polyarch.images.node_fit import (
    NodeView,
    PlatformFit,
    PodRequirements,
    fit_by_platform,
    refusal,
    with_runtime_class,
)
from polyarch.images.pod_images import common_platforms, image_facts, images_of, on_crio
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.tolerations import Toleration

Json = dict[str, Any]


def admitted(given: GivenPod, configuration: Configuration) -> tuple[GivenPod, str]:
    """The pod as webhooks see it, with what its RuntimeClass adds, and why the API server refuses it."""
    found = with_runtime_class(given.pod, configuration.runtime_classes)
    refused = (refusal(given.pod) if given.is_complete else "") or found.refused
    if found.pod is given.pod:
        return given, refused
    spec = dict(given.document.get("spec") or {})
    spec["nodeSelector"] = dict(found.pod.spec.node_selector or {})
    spec["tolerations"] = msgspec.to_builtins(found.pod.spec.tolerations or [])
    spec = {key: value for key, value in spec.items() if value or key not in ("nodeSelector", "tolerations")}
    document = {**given.document, "spec": spec}
    return msgspec.structs.replace(given, document=document, pod=found.pod), refused


def nodes_of(
    entry: Json, given: GivenPod, configuration: Configuration, answers: Mapping[str, Inspection], *, refused: str = ""
) -> tuple[PlatformFit, ...]:
    """What the nodes say of the pod as the entry describes it. Taints that go away by themselves do not count; a
    DaemonSet's controller has its pods tolerate no others."""
    pod = msgspec.convert(entry["pod"], Pod)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=given.pod.spec.node_name))
    read = image_facts(images_of(pod), answers, final=True, stale_for=0.0)
    settings = configuration.taints
    added = (entry.get("tolerations") or {}).get("adds") or ()
    compatibility = settings.compatibility if settings is not None else ()
    requirements = PodRequirements.of(
        pod,
        _tolerations(added, configuration),
        platforms=common_platforms(read, compatibility),
        on_crio=common_platforms(on_crio(read), compatibility),
        refused=refused,
    )
    views = (NodeView.of(node, after=node.spec.taints or ()).lasting for node in configuration.machines)
    return fit_by_platform(requirements, views)


def document(found: Iterable[PlatformFit]) -> list[Json]:
    """The member ``nodes`` of a pod's entry."""
    return [
        {
            "platform": str(each.platform),
            "nodes": each.nodes,
            "fitting": each.fitting,
            "mismatches": [
                {"reason": reason.kind.value, "message": reason.message, "nodes": number}
                for reason, number in each.mismatches
            ],
        }
        for each in found
    ]


def row_of(row: Mapping[str, Any]) -> str:
    """One platform of nodes on one line."""
    system, _, architecture = row["platform"].partition("/")
    platform = row["platform"].removeprefix("linux/") if architecture else f"{system} of unknown architecture"
    head = f"{platform}: {row['fitting']} of {row['nodes']} {'node takes' if row['nodes'] == 1 else 'nodes take'} it"
    reasons = [
        f"{each['message']} ({each['nodes']})" if row["nodes"] > 1 else each["message"] for each in row["mismatches"]
    ]
    return f"{head}: {'; '.join(reasons)}" if reasons else head


def _tolerations(added: Iterable[str], configuration: Configuration) -> list[Toleration]:
    settings = configuration.taints
    return [settings.toleration(each) for each in added] if settings is not None else []
