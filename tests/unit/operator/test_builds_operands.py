"""The objects of the role builder: where it runs, with which flags, reachable, watched."""

from typing import Any

import msgspec
import pytest

from polyarch import names as shared
from polyarch.builds import names
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.installation import objects
from polyarch.installation.settings import Builds, InstallationSettings
from polyarch.operator import certificates
from polyarch.operator.components.builds_objects import arguments, builds_operands
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings


def made(
    settings: OperatorSettings | None = None, cluster: ClusterCapabilities | None = None, **options: Any
) -> dict[tuple[str, str], dict[str, Any]]:
    found = builds_operands(
        settings or OperatorSettings(), cluster or ClusterCapabilities(), ca_bundle=b"CA", **options
    )
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.req("BD-002")
def test_two_replicas_of_the_role_builder() -> None:
    deployment = made()["Deployment", names.ROLE]
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["run", "builder"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == names.ROLE


@pytest.mark.req("BD-002", "BD-151", "BD-154")
def test_the_flags_of_the_role_by_default() -> None:
    """Nothing privileged, no machine OS, and the image that pushes is our own."""
    settings = OperatorSettings(image="registry.example.com/polyarch:1")
    assert arguments(settings) == (
        "--builder-image=quay.io/buildah/stable:v1",
        "--push-image=registry.example.com/polyarch:1",
        "--max-active-jobs=20",
        "--arch-taint-key=kubernetes.io/arch",
        "--arch-taint-key=supported-arch",
        "--machine-os=off",
    )


@pytest.mark.req("BD-151", "BD-154")
def test_privileged_builds_are_for_the_operator_to_allow() -> None:
    given = arguments(OperatorSettings(allow_privileged_builds=True, max_active_jobs=3, builder_image="b.example/b:1"))
    assert "--allow-privileged-builds" in given
    assert "--max-active-jobs=3" in given
    assert "--builder-image=b.example/b:1" in given


@pytest.mark.req("BD-002", "BD-331")
@pytest.mark.parametrize(
    ("mode", "openshift", "expected"), [("auto", True, "auto"), ("auto", False, "off"), ("on", False, "on")]
)
def test_machine_os_images_are_built_where_they_are_wanted(mode: Any, openshift: bool, expected: str) -> None:
    """The builder's flag and its role go together."""
    settings = OperatorSettings(machine_os=mode, machine_os_namespace="machines")
    found = made(settings, ClusterCapabilities(openshift=openshift))
    (container,) = found["Deployment", names.ROLE]["spec"]["template"]["spec"]["containers"]
    assert f"--machine-os={expected}" in container["args"]
    assert ("--machine-os-namespace=machines" in container["args"]) == (expected != "off")
    assert (("ClusterRole", "polyarch-builder-machine-os") in found) == (expected != "off")


@pytest.mark.req("BD-140")
def test_build_pods_tolerate_the_taints_that_this_cluster_has() -> None:
    """As the role's own pods do; a key that is known is not said twice."""
    found = made(tainted=("supported-arch", "example.com/arch"))["Deployment", names.ROLE]["spec"]["template"]["spec"]
    keys = [each for each in found["containers"][0]["args"] if each.startswith("--arch-taint-key=")]
    assert [each.partition("=")[2] for each in keys] == ["kubernetes.io/arch", "supported-arch", "example.com/arch"]
    assert {"key": "example.com/arch", "operator": "Exists"} in found["tolerations"]
    assert PlanSettings().arch_taint_keys == names.ARCH_TAINT_KEYS


@pytest.mark.req("BD-140", "BD-144")
def test_what_the_operator_is_told_for_its_builder_reaches_it() -> None:
    """``run operator`` takes these flags, and used to forget them."""
    given = arguments(
        OperatorSettings(push_image="p.example/push:1", arch_taint_keys=("example.com/cpu",)), ("example.com/node",)
    )
    assert "--push-image=p.example/push:1" in given
    keys = [each.partition("=")[2] for each in given if each.startswith("--arch-taint-key=")]
    assert keys == ["example.com/cpu", "example.com/node"]


@pytest.mark.req("BD-331")
def test_the_clusters_own_pull_secret_is_not_for_builds() -> None:
    """It would tell whoever may create an ImageBuild what others may pull."""
    settings = OperatorSettings(
        global_pull_secret=("infra", "pull"), registries_configmap="mirrors", allow_addresses=("10.0.0.0/8",)
    )
    (container,) = made(settings)["Deployment", names.ROLE]["spec"]["template"]["spec"]["containers"]
    assert not [each for each in container["args"] if "pull-secret" in each]
    assert {"--registries-dir=/etc/polyarch/registries", "--allow-address=10.0.0.0/8"} <= set(container["args"])


@pytest.mark.req("BD-002")
def test_everything_is_of_one_part() -> None:
    """It is pruned and removed by itself."""
    found = made(cluster=ClusterCapabilities(openshift=True, monitoring=True)).values()
    assert {each["metadata"]["labels"][shared.OPERAND_LABEL] for each in found} == {shared.BUILDER}
    assert all(each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "polyarch" for each in found)


@pytest.mark.req("BD-245")
def test_it_is_scraped_and_alerts_exist_where_their_kinds_do() -> None:
    found = made(cluster=ClusterCapabilities(monitoring=True))
    rules = found["PrometheusRule", names.ROLE]["spec"]["groups"][0]["rules"]
    assert {
        "PolyarchBuildFailed",
        "PolyarchBuildWaitingForNode",
        "PolyarchBuildOverhead",
        "PolyarchBuildCleanupAbandoned",
    } < {each["alert"] for each in rules}
    (waiting,) = (each for each in rules if each["alert"] == "PolyarchBuildWaitingForNode")
    assert waiting["for"] == "15m"
    monitor = found["ServiceMonitor", names.ROLE]["spec"]["endpoints"][0]
    assert monitor["tlsConfig"]["ca"] == {"configMap": {"name": "polyarch-builder-serving-ca", "key": "ca.crt"}}
    assert found["ConfigMap", "polyarch-builder-serving-ca"]["data"] == {"ca.crt": "CA"}
    assert not {kind for kind, _ in made()} & {"PrometheusRule", "ServiceMonitor", "ConfigMap"}


@pytest.mark.req("BD-245")
@pytest.mark.parametrize("mode", ["self-managed", "cert-manager", "service-ca"])
def test_its_service_has_a_certificate_in_every_mode(mode: Any) -> None:
    """Prometheus reads over TLS."""
    settings = msgspec.structs.replace(OperatorSettings(), certificates=mode)
    assert certificates.names_of(names.ROLE, settings.namespace)[0] in certificates.dns_names(settings.namespace)
    annotations = made(settings)["Service", names.ROLE]["metadata"].get("annotations", {})
    assert list(annotations.values()) == (["polyarch-builder-certificates"] if mode == "service-ca" else [])


class TestInstallation:
    """``install --component builds``."""

    def settings(self, **values: Any) -> InstallationSettings:
        return InstallationSettings(components=("placement", "builds"), builds=Builds(**values))

    def environment(self, settings: InstallationSettings) -> dict[str, str]:
        (deployment,) = (each for each in objects.documents(settings) if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {each["name"]: each["value"] for each in container["env"] if "value" in each}

    @pytest.mark.req("BD-002")
    def test_it_turns_the_builder_on(self) -> None:
        """No custom resource does."""
        assert self.environment(self.settings())["POLYARCH_BUILDS"] == "on"
        assert self.environment(self.settings(mode="auto"))["POLYARCH_BUILDS"] == "auto"
        assert "POLYARCH_BUILDS" not in self.environment(InstallationSettings())

    @pytest.mark.req("BD-002", "BD-151", "BD-154")
    def test_its_values_are_flags_of_the_operator(self) -> None:
        found = self.environment(self.settings(replicas=3, allow_privileged=True, max_active_jobs=5))
        assert {name: found[f"POLYARCH_{name}"] for name in FLAGS} == {
            "BUILDER_REPLICAS": "3",
            "ALLOW_PRIVILEGED_BUILDS": "true",
            "MAX_ACTIVE_JOBS": "5",
        }

    @pytest.mark.req("BD-002")
    def test_whether_machine_os_images_are_built_is_a_value_too(self) -> None:
        """Off unless somebody sets it, and without component builds."""
        on = Builds(machine_os="on", machine_os_namespace="machines")
        found = self.environment(InstallationSettings(components=("builds",), builds=on))
        assert found["POLYARCH_MACHINE_OS"] == "on"
        assert found["POLYARCH_MACHINE_OS_NAMESPACE"] == "machines"
        assert not [each for each in self.environment(self.settings()) if "MACHINE_OS" in each]
        assert "POLYARCH_MACHINE_OS" not in self.environment(InstallationSettings(builds=on))

    @pytest.mark.req("BD-331")
    def test_an_installation_gives_the_operator_a_role_in_the_namespace_of_machine_os_images(self) -> None:
        """And none there where they are off."""

        def places(settings: InstallationSettings) -> set[str]:
            return {each["metadata"]["namespace"] for each in objects.documents(settings) if each["kind"] == "Role"}

        assert places(self.settings(machine_os="on")) - places(self.settings()) == {"openshift-machine-config-operator"}
        assert places(self.settings(machine_os="auto")) == places(self.settings())

    @pytest.mark.req("BD-002", "IN-040")
    def test_the_image_of_builds_is_among_those_to_mirror(self) -> None:
        images = objects.images(self.settings(builder_image="b.example/b:1"))
        assert [each.reference for each in images if each.value == "builds.builderImage"] == ["b.example/b:1"]
        assert not [each for each in objects.images(InstallationSettings()) if each.value == "builds.builderImage"]

    @pytest.mark.req("BD-010")
    def test_the_definitions_come_with_it_alone(self) -> None:
        """Whoever has no use for builds has no rights for them either."""

        def definitions(settings: InstallationSettings) -> set[str]:
            found = objects.definitions(settings)
            return {each["metadata"]["name"] for each in found if "imagebuild" in each["metadata"]["name"]}

        assert definitions(self.settings()) == {"imagebuilds.polyarch.dev", "imagebuildruns.polyarch.dev"}
        assert definitions(InstallationSettings()) == set()


FLAGS = ("BUILDER_REPLICAS", "ALLOW_PRIVILEGED_BUILDS", "MAX_ACTIVE_JOBS")
