"""MA117: obsolete objects of our own kinds (PL-060, PL-061).

Pure.
"""

from collections.abc import Iterator
from typing import Any

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation
from polyarch.manifests.scan.nodes import find, get
from polyarch.manifests.scan.objects import KubeObject

RULE = Rule(
    id="MA117",
    severity=Severity.ERROR,
    title="A polyarch or multiarch object is obsolete",
    meaning="PodPlacementConfig of multiarch.openshift.io/v1alpha1 was the cluster-wide configuration of a preview. "
    "ClusterPodPlacementConfig v1beta1 replaces it.",
    fix="Rewrites the object and adds a PlacementPolicy that keeps the exclusions of the preview.",
)

_GROUP = "multiarch.openshift.io"
_NAME = "cluster"

POLICY: dict[str, Any] = {
    "apiVersion": "polyarch.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": _NAME},
    "spec": {"excludedNamespaces": ["openshift-*", "hypershift-*"]},
}
"""The namespaces that the preview excluded; the current default does not."""


def check(facts: ObjectFacts) -> Iterator[Draft]:
    subject = facts.object
    if subject.kind != "PodPlacementConfig" or subject.api_version != f"{_GROUP}/v1alpha1":
        return
    node = get(subject.node, "apiVersion")
    if node is None or subject.patched_by is not None:
        return
    policy = "kind: PlacementPolicy" in subject.document.source.text
    yield Draft(
        rule=RULE,
        message=f"{subject.reference} of {subject.api_version} was the cluster-wide configuration of a preview; "
        f"ClusterPodPlacementConfig of {_GROUP}/v1beta1, named {_NAME}, replaces it",
        hint="polyarch fix rewrites it and adds a PlacementPolicy that keeps openshift-* and hypershift-* excluded",
        node=node,
        pointer=subject.pointer + pointer("apiVersion"),
        repair=Repair(tuple(_rewritten(subject)), document=subject.document.index),
        documents=() if policy else (POLICY,),
    )


def _rewritten(subject: KubeObject) -> Iterator[TreeOperation]:
    where, spec = subject.pointer, get(subject.node, "spec")
    yield Replace(f"{where}/apiVersion", f"{_GROUP}/v1beta1")
    yield Replace(f"{where}/kind", "ClusterPodPlacementConfig")
    if subject.metadata is None:
        yield Add(f"{where}/metadata", {"name": _NAME})
    elif get(subject.metadata, "name") is None:
        yield Add(f"{where}/metadata/name", _NAME)
    elif subject.name != _NAME:
        yield Replace(f"{where}/metadata/name", _NAME)
    if find(subject.node, "metadata", "namespace") is not None:
        yield Remove(f"{where}/metadata/namespace")
    if get(spec, "logVerbosityLevel") is not None:
        if get(spec, "logVerbosity") is None:
            yield Rename(f"{where}/spec/logVerbosityLevel", "logVerbosity")
        else:
            yield Remove(f"{where}/spec/logVerbosityLevel")
