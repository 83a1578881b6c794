"""The objects of an installation, from its settings alone."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tools.generate.olm_bundle import cluster_service_version

from polyarch.installation import objects, operator
from polyarch.installation.settings import (
    Image,
    InstallationSettings,
    Numa,
    OperatorPods,
    Placement,
    Registries,
    of_record,
    recorded,
)
from polyarch.numa.api.crds import operator_violations
from polyarch.operator import operands
from polyarch.operator.settings import OperatorSettings

NAMESPACE = "tools"
Json = dict[str, Any]


def made(settings: InstallationSettings | None = None) -> list[Json]:
    return list(objects.documents(settings or InstallationSettings(), namespace=NAMESPACE))


def only(kind: str, settings: InstallationSettings | None = None) -> Json:
    (found,) = [each for each in made(settings) if each["kind"] == kind]
    return found


def read(values: Json) -> InstallationSettings:
    return msgspec.convert(values, InstallationSettings)


def container(settings: InstallationSettings | None = None) -> Json:
    (found,) = only("Deployment", settings)["spec"]["template"]["spec"]["containers"]
    return found


def values_of(settings: InstallationSettings) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(settings)["env"] if "value" in each}


@pytest.mark.req("IN-002")
def test_what_others_need_comes_first() -> None:
    kinds = list(dict.fromkeys(each["kind"] for each in made()))
    first, *_, last = kinds
    assert (first, last) == ("CustomResourceDefinition", "ClusterPodPlacementConfig")
    assert kinds.index("Namespace") < kinds.index("ServiceAccount") < kinds.index("Deployment")


@pytest.mark.req("IN-003")
def test_every_object_has_the_label_by_which_it_is_found_again() -> None:
    assert {each["metadata"]["labels"][operator.PART_OF] for each in made()} == {"polyarch"}


@pytest.mark.req("IN-001")
def test_everything_is_in_the_namespace_or_cluster_scoped() -> None:
    assert {each["metadata"].get("namespace", NAMESPACE) for each in made()} == {NAMESPACE}


# Component numa -------------------------------------------------------------------------------------------------------

WITH_NUMA = InstallationSettings(components=("numa",))


def names_of(kind: str, settings: InstallationSettings) -> list[str]:
    return [each["metadata"]["name"] for each in made(settings) if each["kind"] == kind]


@pytest.mark.req("NO-001")
def test_component_numa_publishes_the_zones_of_all_nodes() -> None:
    found = only("NUMAResourcesOperator", WITH_NUMA)
    assert found["metadata"]["name"] == "numaresourcesoperator"
    assert found["spec"] == {
        "nodeGroups": [{"poolName": "all", "nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux"}}}]
    }
    assert operator_violations(found) == (), "the operator has nothing to complain about"
    assert names_of("NUMAResourcesScheduler", WITH_NUMA) == [], "a scheduler is for who asks for one"


@pytest.mark.req("NO-010")
def test_the_scheduler_comes_after_the_exporters() -> None:
    kinds = [each["kind"] for each in made(InstallationSettings(components=("numa",), numa=Numa(scheduler={})))]
    assert kinds.index("NUMAResourcesOperator") < kinds.index("NUMAResourcesScheduler")


@pytest.mark.req("NO-057")
def test_exporters_get_a_privileged_namespace_and_nobody_else_does() -> None:
    label = "pod-security.kubernetes.io/enforce"
    assert only("Namespace", WITH_NUMA)["metadata"]["labels"][label] == "privileged"
    assert only("Namespace")["metadata"]["labels"][label] == "restricted"
    assert values_of(WITH_NUMA)["POLYARCH_MANAGE_NAMESPACE"] == "true"


@pytest.mark.req("NO-120")
def test_without_the_component_nothing_of_numa_is_there() -> None:
    """Neither rights, nor definitions of which another operator may have its own."""
    text = str(made())
    for word in ("nodetopology.openshift.io", "topology.node.k8s.io", "secondary-scheduler"):
        assert word not in text
    assert values_of(InstallationSettings())["POLYARCH_NUMA"] == "off"
    assert values_of(WITH_NUMA)["POLYARCH_NUMA"] == "auto"


@pytest.mark.req("NO-120")
def test_the_rules_for_numa_are_added_to_those_of_all() -> None:
    def rules(settings: InstallationSettings) -> list[Json]:
        return [rule for each in made(settings) if "Role" in each["kind"] for rule in each.get("rules", ())]

    with_numa = rules(InstallationSettings(components=("placement", "numa")))
    assert [rule for rule in rules(InstallationSettings()) if rule not in with_numa] == []


@pytest.mark.req("IN-001")
def test_nothing_is_made_twice() -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in made()]
    assert len(names) == len(set(names))


@pytest.mark.req("IN-001")
def test_settings_cannot_be_changed_through_the_documents() -> None:
    settings = InstallationSettings()
    only("Deployment", settings)["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9"
    assert settings == InstallationSettings()


@pytest.mark.req("IN-001", "IN-010")
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        pytest.param({"imagee": {}}, "imagee", id="a misspelt value"),
        pytest.param({"operator": {"replica": 1}}, r"\$\.operator", id="a misspelt value inside another"),
        pytest.param({"operator": {"replicas": -1}}, r"\$\.operator\.replicas", id="a number out of range"),
        pytest.param({"placement": {"webhookReplicas": 0}}, r"webhookReplicas", id="fewer than an operator takes"),
        pytest.param({"taints": {"replicas": 21}}, r"\$\.taints\.replicas", id="more than an operator takes"),
        pytest.param({"builds": {"builderImage": ""}}, r"builderImage", id="an image without a name"),
        pytest.param({"components": ["monitor"]}, r"\$\.components", id="a component that is not there yet"),
        pytest.param({"components": []}, r"\$\.components", id="no component"),
        pytest.param({"image": {"digest": "latest"}}, r"\$\.image\.digest", id="no digest"),
    ],
)
def test_wrong_values_are_refused_with_their_place(values: Json, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        read(values)


@pytest.mark.req("IN-001")
@pytest.mark.parametrize("name", objects.PLANNED)
def test_a_component_of_later_is_refused_with_those_that_exist(name: str) -> None:
    known = "placement, taints, builds, numa"
    with pytest.raises(objects.UnknownComponent, match=f"not part of this version; .*: {known}"):
        objects.component(name)


@pytest.mark.req("IN-010")
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param(Image(repository="r.example/p", tag="2"), "r.example/p:2", id="a tag"),
        pytest.param(
            Image(repository="r.example/p", digest="sha256:" + "a" * 64),
            "r.example/p@sha256:" + "a" * 64,
            id="a digest",
        ),
        pytest.param(Image(), OperatorSettings().image, id="the default is the image of this version"),
    ],
)
def test_the_image_by_tag_or_digest(image: Image, expected: str) -> None:
    settings = InstallationSettings(image=image)
    assert container(settings)["image"] == expected
    assert [each.reference for each in objects.images(settings)] == [expected]


VERSION = "v1.33.2-eks-1a2b3c"
POLYARCH = OperatorSettings().image
BUILDAH = OperatorSettings().builder_image
NUMA: dict[str, Any] = {"components": ["numa"]}
BUILDS: dict[str, Any] = {"components": ["builds"]}
IMAGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "placement alone": ({"numa": {"scheduler": {}}}, [POLYARCH]),
    "builds": (BUILDS, [POLYARCH, BUILDAH]),
    "another builder": (BUILDS | {"builds": {"builderImage": "r.example/b:1"}}, [POLYARCH, "r.example/b:1"]),
    "a builder by a variable, as in a bundle": (
        BUILDS | {"operator": {"environment": {"POLYARCH_BUILDER_IMAGE": "$(RELATED)", "RELATED": "r.example/b:2"}}},
        [POLYARCH, "r.example/b:2"],
    ),
    "an image of its own for pushes": (
        BUILDS | {"operator": {"environment": {"POLYARCH_PUSH_IMAGE": "r.example/p:2"}}},
        [POLYARCH, BUILDAH, "r.example/p:2"],
    ),
    "exporters alone": (NUMA, [POLYARCH]),
    "a scheduler, of the cluster's version": (
        NUMA | {"numa": {"scheduler": {"replicas": 2}}},
        [POLYARCH, "registry.k8s.io/kube-scheduler:v1.33.2"],
    ),
    "another scheduler": (
        NUMA | {"numa": {"scheduler": {"imageSpec": "r.example/s:1"}}},
        [POLYARCH, "r.example/s:1"],
    ),
    "another scheduler by a variable": (
        NUMA | {"numa": {"scheduler": {}}, "operator": {"environment": {"KUBE_SCHEDULER_IMAGE": "r.example/s:2"}}},
        [POLYARCH, "r.example/s:2"],
    ),
    "another exporter, which the operator takes": (
        NUMA
        | {
            "numa": {"configuration": {"nodeGroups": [{"poolName": "all"}], "imageSpec": "r.example/e:1"}},
            "operator": {"environment": {"EXPORTER_IMAGE_RESTRICTION": "false"}},
        },
        [POLYARCH, "r.example/e:1"],
    ),
    "another exporter, which the operator refuses": (
        NUMA | {"numa": {"configuration": {"nodeGroups": [{"poolName": "all"}], "imageSpec": "r.example/e:1"}}},
        [POLYARCH],
    ),
    "everything": (
        {"components": ["placement", "taints", "builds", "numa"], "numa": {"scheduler": {}}},
        [POLYARCH, BUILDAH, "registry.k8s.io/kube-scheduler:v1.33.2"],
    ),
}


@pytest.mark.req("IN-037")
@pytest.mark.parametrize(("values", "expected"), IMAGES.values(), ids=IMAGES)
def test_the_images_that_an_installation_runs(values: dict[str, Any], expected: list[str]) -> None:
    settings = read(values)
    assert [each.reference for each in objects.images(settings, version=VERSION)] == expected
    depends = any(each.endswith("kube-scheduler:v1.33.2") for each in expected)
    assert objects.needs_version(settings) == depends
    assert len(objects.images(settings)) == len(expected) - depends, "without a version the stock one is not guessed"


@pytest.mark.req("IN-037")
def test_the_bundle_and_the_chart_list_the_same_images() -> None:
    everything = [each.reference for each in objects.images(read({"components": list(objects.COMPONENTS)}))]
    bundle = cluster_service_version(read({"components": list(objects.COMPONENTS)}))
    assert [each["image"] for each in bundle["spec"]["relatedImages"]] == everything
    chart = yaml.safe_load(Path("deploy/chart/Chart.yaml").read_text())
    listed = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert [each["image"] for each in listed] == everything


@pytest.mark.req("IN-030")
def test_settings_that_differ_from_the_defaults_are_in_the_environment() -> None:
    given = read(
        {
            "certificates": "cert-manager",
            "networkPolicies": False,
            "admissionPolicies": False,
            "placement": {"webhookReplicas": 5},
            "registries": {
                "configMap": "mirrors",
                "globalPullSecret": {"namespace": "infra", "name": "pull"},
                "allowAddresses": ["10.0.0.0/8", "127.0.0.0/8"],
            },
        }
    )
    usual = values_of(InstallationSettings())
    assert {name: value for name, value in values_of(given).items() if usual.get(name) != value} == {
        "POLYARCH_CERTIFICATES": "cert-manager",
        "POLYARCH_NETWORK_POLICIES": "false",
        "POLYARCH_ADMISSION_POLICIES": "false",
        "POLYARCH_WEBHOOK_REPLICAS": "5",
        "POLYARCH_REGISTRIES_CONFIGMAP": "mirrors",
        "POLYARCH_GLOBAL_PULL_SECRET_NAMESPACE": "infra",
        "POLYARCH_GLOBAL_PULL_SECRET_NAME": "pull",
        "POLYARCH_ALLOW_ADDRESS": "10.0.0.0/8 127.0.0.0/8",
    }


def test_the_operator_is_told_by_its_environment_alone() -> None:
    assert container()["args"] == ["run", "operator"]


def test_the_operator_knows_its_own_pod() -> None:
    assert {each["name"] for each in container()["env"] if "valueFrom" in each} >= {
        "POD_NAME",
        "POD_NAMESPACE",
        "POD_IP",
    }


def test_texts_about_registries_become_a_configmap_that_the_roles_mount() -> None:
    settings = InstallationSettings(
        registries=Registries(configuration='unqualified-search-registries = ["quay.io"]\n')
    )
    made = only("ConfigMap", settings)
    assert made["data"] == {"registries.conf": settings.registries.configuration}
    assert values_of(settings)["POLYARCH_REGISTRIES_CONFIGMAP"] == made["metadata"]["name"]


def test_labels_annotations_and_pod_settings_are_where_they_belong() -> None:
    pods = OperatorPods(
        labels={"team": "a"},
        annotations={"note": "x"},
        environment={"HTTPS_PROXY": "http://p"},
    )
    settings = InstallationSettings(
        labels={"cost": "1"}, annotations={"owner": "me"}, operator=pods, node_selector={"infra": "yes"}
    )
    for each in made(settings):
        assert each["metadata"]["labels"]["cost"] == "1"
        assert each["metadata"]["annotations"]["owner"] == "me"
    template = only("Deployment", settings)["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {"note": "x", **operands.KNOWS_TOKENS}
    assert template["spec"]["nodeSelector"] == {"infra": "yes"}
    assert values_of(settings)["HTTPS_PROXY"] == "http://p"


def test_labels_of_users_never_break_the_selector() -> None:
    settings = InstallationSettings(operator=OperatorPods(labels={"controller": "mine"}))
    spec = only("Deployment", settings)["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


@pytest.mark.req("PL-502")
def test_required_architectures_are_added_to_the_affinity_of_users() -> None:
    term = {"matchExpressions": [{"key": "infra", "operator": "Exists"}]}
    given = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    pods = OperatorPods(affinity={**given, "podAntiAffinity": {}})
    spec = only("Deployment", InstallationSettings(operator=pods))["spec"]["template"]["spec"]
    (made,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [each["key"] for each in made["matchExpressions"]] == ["infra", "kubernetes.io/arch", "kubernetes.io/os"]
    assert spec["affinity"]["podAntiAffinity"] == {}, "the user's word"
    usual = only("Deployment", InstallationSettings(operator=OperatorPods(affinity=given)))["spec"]["template"]["spec"]
    (apart,) = usual["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["labelSelector"] == {"matchLabels": {"controller": "polyarch-operator"}}


@pytest.mark.req("PL-541")
def test_the_service_ca_of_openshift_is_asked_only_where_it_issues() -> None:
    annotation = "service.beta.openshift.io/serving-cert-secret-name"
    assert "annotations" not in only("Service")["metadata"]
    made = only("Service", InstallationSettings(certificates="service-ca"))
    assert made["metadata"]["annotations"] == {annotation: "polyarch-operator-certificates"}


def test_the_custom_resource_is_made_unless_the_user_makes_it() -> None:
    kinds = {each["kind"] for each in made(InstallationSettings(placement=Placement(configuration=None)))}
    assert "ClusterPodPlacementConfig" not in kinds
    policy = InstallationSettings(placement=Placement(policy={"mode": "audit"}))
    assert [each["kind"] for each in made(policy)][-2:] == ["PlacementPolicy", "ClusterPodPlacementConfig"]
    assert only("PlacementPolicy", policy)["spec"] == {"mode": "audit"}


@pytest.mark.req("IN-004")
def test_an_upgrade_reads_the_values_back_that_were_installed() -> None:
    given = read({"image": {"repository": "r.example/p"}, "operator": {"environment": {"HTTPS_PROXY": "http://p"}}})
    record = recorded(given)
    assert of_record(record) == given
    assert recorded(InstallationSettings()) == "{}"
    (deployment,) = [
        each for each in objects.remembering(objects.documents(given), given) if each["kind"] == "Deployment"
    ]
    assert deployment["metadata"]["annotations"][objects.VALUES] == record


@pytest.mark.req("IN-004")
def test_values_that_this_version_does_not_have_are_left_out() -> None:
    assert of_record('{"image": {"repository": "r.example/p", "gone": 1}, "gone": {"a": 1}}') == InstallationSettings(
        image=Image(repository="r.example/p")
    )


@pytest.mark.req("IN-001")
@pytest.mark.parametrize(
    "given",
    [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "infra", "operator": "Exists"},
        {"key": "infra", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    ],
)
def test_tolerations_reach_the_roles_as_they_reach_the_operator(given: Json) -> None:
    """They travel as one variable, in which an empty text would be lost."""
    settings = read({"tolerations": [given, {"key": "other", "operator": "Exists"}]})
    told = values_of(settings)["POLYARCH_TOLERATION"].split()
    assert [operands.toleration(each) for each in told] == [given, {"key": "other", "operator": "Exists"}]
