"""Shared by the tests of bundles: a ClusterServiceVersion made from what matters to a test."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from linting import answers, scanned

from polyarch.manifests import operations as tree
from polyarch.manifests.bundle import Bundle, BundleTree, load
from polyarch.manifests.rules.engine import RepairableFinding, lint, wanted
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.scan.sets import ImageInspections

ARCH = "operatorframework.io/arch."
OS = "operatorframework.io/os."
SUPPORTED = "supported"
MANAGER = "quay.io/acme/manager:1"
PROXY = "quay.io/acme/proxy:1"
OPERAND = "quay.io/acme/operand:1"
TWO = ["linux/amd64", "linux/arm64"]
ONE = ["linux/amd64"]
DIGEST = "sha256:" + "a" * 64
CHILD = "sha256:" + "b" * 64


def container(name: str = "manager", image: str = MANAGER, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


def in_terms(*terms: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Required node affinity with ``In`` expressions on ``arch`` and ``os`` (or whole keys)."""
    short = {"arch": "kubernetes.io/arch", "os": "kubernetes.io/os"}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": short.get(key, key), "operator": "In", "values": list(values)}
                            for key, values in term.items()
                        ]
                    }
                    for term in terms
                ]
            }
        }
    }


def csv(
    *pod_specs: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    related: Mapping[str, str] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A ClusterServiceVersion called ``acme.v1`` with one deployment for each pod specification."""
    pod_specs = pod_specs or ({"containers": [container()]},)
    spec: dict[str, Any] = {
        "install": {
            "strategy": "deployment",
            "spec": {
                "deployments": [
                    {"name": f"d{index}", "spec": {"template": {"spec": dict(each)}}}
                    for index, each in enumerate(pod_specs)
                ]
            },
        }
    }
    if related is not None:
        spec["relatedImages"] = [{"name": name, "image": image} for name, image in related.items()]
    named = {"name": "acme.v1", **metadata} | ({"labels": dict(labels)} if labels is not None else {})
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": named,
        "spec": spec,
    }


def labels(*names: str, **values: str) -> dict[str, str]:
    """Labels by name: ``amd64`` for an architecture, ``os.linux`` for a system."""
    found = {}
    for name in names:
        found[OS + name.removeprefix("os.") if name.startswith("os.") else ARCH + name] = SUPPORTED
    return found | values


def dumped(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def known(document: Mapping[str, Any], images: Mapping[str, Any]) -> ImageInspections:
    """Answers for all that a ClusterServiceVersion names."""
    return answers(images, wanted(scanned(dumped(document)), LintOptions()))


def judged(document: Mapping[str, Any], images: Mapping[str, Any], **options: Any) -> tuple[RepairableFinding, ...]:
    """All problems of a ClusterServiceVersion."""
    return lint(scanned(dumped(document)), known(document, images), LintOptions(**options))


def of(found: Sequence[RepairableFinding], rule: str, sub: str = "") -> list[RepairableFinding]:
    return [each for each in found if each.finding.rule == rule and (not sub or each.finding.sub == sub)]


def repaired(document: Mapping[str, Any], problem: RepairableFinding) -> Any:
    """The document after the repair."""
    assert problem.repair is not None
    assert problem.repair.operations, problem.repair.note
    return tree.apply(yaml.safe_load(dumped(document)), problem.repair.operations)


def bundle(document: Mapping[str, Any], **files: str) -> Bundle:
    """A bundle of it and of further manifests by name (without ``.yaml``)."""
    return load(
        BundleTree(
            "acme",
            {"manifests/acme.clusterserviceversion.yaml": dumped(document).encode()}
            | {f"manifests/{name}.yaml": text.encode() for name, text in files.items()},
        )
    )
