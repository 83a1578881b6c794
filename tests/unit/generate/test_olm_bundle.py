"""What is in the bundle for OLM besides what the operator's own objects say."""

import yaml
from tools.generate import olm_bundle

from polyarch.installation.operator import environment
from polyarch.operator.settings import OperatorSettings
from polyarch.sandbox.pods.programs import expanded

PINNED = "mirror.example.com/buildah@sha256:" + "a" * 64


def test_images_are_built_with_the_related_image_that_a_mirror_wrote() -> None:
    """Tools that pin a bundle's images rewrite ``RELATED_IMAGE_*`` and nothing else: the operator must read it."""
    made = yaml.safe_load(olm_bundle.files()["manifests/polyarch.clusterserviceversion.yaml"])
    (deployment,) = made["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    seen: dict[str, str] = {}
    for each in container["env"]:  # as a kubelet does: in order, with the variables before it
        value = PINNED if each["name"] == "RELATED_IMAGE_BUILDAH" else each.get("value", "")
        seen[each["name"]] = expanded(value, seen)
    assert {name: seen[name] for name in environment(OperatorSettings(builder_image=PINNED)) if "IMAGE" in name} == {
        "POLYARCH_BUILDER_IMAGE": PINNED
    }
