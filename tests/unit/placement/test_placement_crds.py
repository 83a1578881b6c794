"""Custom resources: names, defaults and bounds are those by which we read them."""

from typing import Any

import msgspec
import pytest

from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS, PlacementPolicy
from polyarch.placement.crd import crds
from polyarch.placement.settings import Settings, SettingsTable

pytestmark = pytest.mark.req("PL-030")

DOCUMENTS = {document["metadata"]["name"]: document for document in crds()}


def version(crd: str, name: str) -> dict[str, Any]:
    return next(each for each in DOCUMENTS[crd]["spec"]["versions"] if each["name"] == name)


def spec_of(crd: str, name: str) -> dict[str, Any]:
    return version(crd, name)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


@pytest.mark.req("PL-001")
def test_the_resources_keep_their_names() -> None:
    shown = {
        name: (document["spec"]["scope"], document["spec"]["names"]["kind"]) for name, document in DOCUMENTS.items()
    }
    assert shown == {
        "clusterpodplacementconfigs.multiarch.openshift.io": ("Cluster", "ClusterPodPlacementConfig"),
        "podplacementconfigs.multiarch.openshift.io": ("Namespaced", "PodPlacementConfig"),
        "enoexecevents.multiarch.openshift.io": ("Namespaced", "ENoExecEvent"),
        "placementpolicies.polyarch.dev": ("Cluster", "PlacementPolicy"),
    }
    assert DOCUMENTS["placementpolicies.polyarch.dev"]["spec"]["names"]["shortNames"] == ["plp"]


@pytest.mark.req("PL-010")
@pytest.mark.parametrize("resource", [CPPCS, PPCS, ENOEXECEVENTS, POLICIES], ids=str)
def test_what_we_read_is_the_stored_version(resource: Any) -> None:
    stored = [each["name"] for each in DOCUMENTS[str(resource)]["spec"]["versions"] if each["storage"]]
    assert stored == [resource.version]


@pytest.mark.req("PL-010", "PL-012")
def test_v1alpha1_has_the_fields_that_it_ever_had() -> None:
    """The conversion keeps the others as annotations. The operator switches it on; a CRD applied
    again leaves it as it is."""
    crd = "clusterpodplacementconfigs.multiarch.openshift.io"
    assert "conversion" not in DOCUMENTS[crd]["spec"]
    assert version(crd, "v1alpha1")["served"]
    assert spec_of(crd, "v1alpha1").keys() == {"logVerbosity", "namespaceSelector"}
    assert spec_of(crd, "v1beta1").keys() > spec_of(crd, "v1alpha1").keys()


@pytest.mark.req("PL-010", "PL-036", "PL-041")
@pytest.mark.parametrize(
    ("crd", "name", "columns"),
    [
        (
            "clusterpodplacementconfigs.multiarch.openshift.io",
            "v1beta1",
            ["Available", "Progressing", "Degraded", "Since", "Status"],
        ),
        ("enoexecevents.multiarch.openshift.io", "v1beta1", ["NodeName", "PodName", "PodNamespace", "ContainerID"]),
        ("placementpolicies.polyarch.dev", "v1alpha1", ["Mode", "OnUnresolved", "Inline", "Ready", "Age"]),
    ],
)
def test_printer_columns(crd: str, name: str, columns: list[str]) -> None:
    assert [each["name"] for each in version(crd, name)["additionalPrinterColumns"]] == columns


def defaults(schema: dict[str, Any]) -> Any:
    """What the API server fills into an empty object."""
    if "default" in schema and schema["default"] != {}:
        return schema["default"]
    if schema["type"] != "object":
        return None
    members = {name: defaults(member) for name, member in schema.get("properties", {}).items()}
    return {name: value for name, value in members.items() if value not in (None, {})}


@pytest.mark.req("PL-040")
def test_the_schemas_defaults_are_the_settings_defaults() -> None:
    root = version("placementpolicies.polyarch.dev", "v1alpha1")["schema"]["openAPIV3Schema"]
    policy = msgspec.convert({"spec": defaults(root["properties"]["spec"])}, PlacementPolicy)
    filled = SettingsTable.of(policy, None, operator_namespace="")
    assert filled.problems == ()
    assert set(filled.spec.warm_up_kinds) == set(Settings().warm_up_kinds)
    assert msgspec.structs.replace(filled.spec, warm_up_kinds=Settings().warm_up_kinds) == Settings()


@pytest.mark.req("PL-042")
def test_overrides_have_no_defaults_so_that_they_inherit() -> None:
    entry = spec_of("placementpolicies.polyarch.dev", "v1alpha1")["overrides"]["items"]
    assert defaults(entry) == {}
    assert set(entry["properties"]) == {
        "name",
        "namespaceSelector",
        "mode",
        "onUnresolved",
        "inline",
        "osConstraint",
        "podOptOut",
        "events",
        "sweep",
    }
