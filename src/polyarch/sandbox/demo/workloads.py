"""The pods of the demo and their images: common mixes, a private and a slow image, and one pod that can run nowhere.

Pure: documents only.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from polyarch.oci.reference import parse
from polyarch.platforms import Platform
from polyarch.sandbox.registry import catalogue

USER, PASSWORD = "demo", "open-sesame"
PULL_SECRET = "registry"

IMAGES: Mapping[str, Any] = {
    **catalogue.FAMILIAR,
    "quay.io/acme/vault:3.0": {
        "platforms": ["linux/amd64", "linux/s390x"],
        "private": True,
        "users": {USER: PASSWORD},
    },
    # Too slow for the webhook's time budget: this pod is held by a scheduling gate for a moment.
    "registry.example.com/overseas/reports:1.8": {"platforms": ["linux/ppc64le", "linux/arm64"], "delay": 400},
}


class Workload(msgspec.Struct, frozen=True):
    """One pod of the demo."""

    name: str
    images: tuple[str, ...]
    private: bool = False
    architecture: str = ""
    """The architecture in the pod's own nodeSelector."""

    def document(self, namespace: str) -> dict[str, Any]:
        containers = [
            {"name": parse(image).repository.rpartition("/")[2], "image": image, "imagePullPolicy": "IfNotPresent"}
            for image in self.images
        ]
        spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": 0}
        if self.private:
            spec["imagePullSecrets"] = [{"name": PULL_SECRET}]
        if self.architecture:
            spec["nodeSelector"] = {"kubernetes.io/arch": self.architecture}
        metadata = {"name": self.name, "namespace": namespace, "labels": {"app": self.name}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


WORKLOADS = (
    Workload("web", ("nginx:1.27",)),
    Workload("shop", ("nginx:1.27", "mysql:8.4")),
    Workload("billing", ("quay.io/acme/billing:2.3",)),
    Workload("edge", ("quay.io/acme/edge-agent:1.0", "redis:7")),
    Workload("bridge", ("quay.io/acme/mainframe-bridge:4.1",)),
    Workload("vault", ("quay.io/acme/vault:3.0",), private=True),
    Workload("reports", ("registry.example.com/overseas/reports:1.8",)),
    Workload("pinned", ("redis:7",), architecture="arm64"),
    Workload("impossible", ("quay.io/acme/billing:2.3", "quay.io/acme/mainframe-bridge:4.1")),
)


def platforms(image: str) -> list[str]:
    """The platforms of an image of the demo; empty for an unknown image."""
    wanted = parse(image).canonical
    for described in catalogue.read(IMAGES, "demo"):
        if described.reference.canonical == wanted:
            return [str(Platform.parse(text)) for text in described.description.platforms]
    return []


def can_run(workload: Workload, node_architectures: Sequence[str]) -> bool:
    """Whether all its images and its nodeSelector allow the architecture of at least one node."""
    possible = {workload.architecture} if workload.architecture else set(node_architectures)
    for image in workload.images:
        possible &= {Platform.parse(text).architecture for text in platforms(image)}
    return bool(possible & set(node_architectures))


def pull_secret(namespace: str, registry: str) -> dict[str, Any]:
    """A pull secret. Its key is the registry's real address: credentials are sent to no other host (RG-084)."""
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    config = msgspec.json.encode({"auths": {registry: {"auth": pair}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": PULL_SECRET, "namespace": namespace},
        "data": {".dockerconfigjson": base64.b64encode(config).decode()},
    }
