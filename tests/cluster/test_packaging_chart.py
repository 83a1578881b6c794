"""The chart with Helm itself: what it renders is what `polyarch install --print` prints."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from helm_chart import CHART, LOCAL, Helm
from tools.generate.__main__ import DASHBOARDS
from tools.generate.chart_values import ChartValues

from polyarch import __version__
from polyarch.installation.objects import documents
from polyarch.installation.settings import Builds, ComponentName
from polyarch.operator.owned_objects import finished
from polyarch.operator.settings import MachineOS
from polyarch.sandbox import versions

NAMESPACE = "polyarch-system"
FILES = {path.stem: path for path in sorted((CHART / "ci").glob("*.yaml"))}
OPENSHIFT = ("--api-versions", "config.openshift.io/v1")
Document = dict[str, Any]


@pytest.fixture(params=["helm-3", "helm-4"])
def helm(request: pytest.FixtureRequest, peer: Callable[[str], str], tmp_path: Path) -> Helm:
    return Helm(peer(request.param), tmp_path)


def values(path: Path | None) -> ChartValues:
    """The values of a file as polyarch reads them."""
    given = yaml.safe_load(path.read_text()) if path else {}
    return msgspec.convert(given, ChartValues)


def wanted(settings: ChartValues, *, openshift: bool = False) -> list[Document]:
    """What `polyarch install --print` prints, without what Helm makes by itself."""
    if settings.openshift is None:
        settings = msgspec.structs.replace(settings, openshift=openshift)
    made = documents(settings, namespace=NAMESPACE)
    return [each for each in made if each["kind"] not in {"CustomResourceDefinition", "Namespace"}]


def comparable(several: Iterable[Document]) -> dict[str, Document]:
    """By kind, namespace and name; rules as what they allow, and variables by name, as their order means nothing."""
    found = {}
    for document in several:
        metadata = document["metadata"]
        key = f"{document['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        assert key not in found, f"{key} is there twice"
        if "rules" in document:
            document = {**document, "rules": allowed(document["rules"])}
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            variables = {each.pop("name"): each for each in container["env"]}
            assert len(variables) == len(container["env"]), f"{key} has a variable twice"
            container["env"] = variables
        found[key] = json.loads(json.dumps(document, sort_keys=True))
    return found


def allowed(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """Each right by itself: ``get secrets NAME``; without those that a right without a name covers."""
    rights = {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ("",))
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for name in rule.get("resourceNames") or ("",)
    }
    return sorted(" ".join(each) for each in rights if not each[3] or (*each[:3], "") not in rights)


@pytest.mark.req("IN-001")
def test_with_its_defaults_it_is_what_install_prints(helm: Helm) -> None:
    """Object by object, field by field; the namespace is Helm's to make."""
    assert comparable(helm.rendered()) == comparable(wanted(ChartValues()))


@pytest.mark.req("IN-010")
@pytest.mark.parametrize("openshift", [False, True], ids=["kubernetes", "on OpenShift"])
@pytest.mark.parametrize("name", FILES)
def test_with_every_values_file_it_is_what_install_prints(helm: Helm, name: str, openshift: bool) -> None:
    options = [*(OPENSHIFT if openshift else ()), "--api-versions", "multiarch.openshift.io/v1beta1"]
    rendered = helm.rendered("--values", str(FILES[name]), *options)
    own = [each for each in rendered if each["kind"] == "CustomResourceDefinition" or is_dashboard(each)]
    settings = values(FILES[name])
    assert comparable(each for each in rendered if each not in own) == comparable(wanted(settings, openshift=openshift))
    assert bool([each for each in own if is_dashboard(each)]) == settings.dashboards.enabled
    assert bool([each for each in own if not is_dashboard(each)]) == settings.crds.enabled


def is_dashboard(document: Document) -> bool:
    return document["metadata"]["name"] in {f"{each.name}-dashboard" for each in DASHBOARDS}


@pytest.mark.req("IN-010")
@pytest.mark.parametrize("name", FILES)
def test_it_is_clean_by_strict_lint(helm: Helm, name: str) -> None:
    helm("lint", "--strict", str(CHART), "--values", str(FILES[name]), "--kube-version", versions.KUBERNETES)


@pytest.mark.req("IN-010")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("imagePullSecret=x", "imagePullSecret"),
        ("operator.replica=1", "replica"),
        ("operator.replicas=many", "replicas"),
        ("certificates=selfmanaged", "certificates"),
        ("image.digest=0123", "digest"),
        ("registries.allowAddresses={10.0.0.0/8,10.0.0/8}", "allowAddresses"),
    ],
)
def test_a_misspelt_value_is_refused_by_its_name(helm: Helm, given: str, told: str) -> None:
    done = helm.run("template", "polyarch", str(CHART), *LOCAL, "--set", given)
    assert done.returncode != 0
    assert told in done.stderr


@pytest.mark.req("IN-010")
def test_it_is_a_dependency_with_a_condition_and_shared_values(helm: Helm, tmp_path: Path) -> None:
    """Helm validates what a parent says of its dependency, its condition among it, by the dependency's schema."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "polyarch")
    needed = {"name": "polyarch", "version": "*", "condition": "polyarch.enabled"}
    chart = {"apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [needed]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    given = ("--set", "polyarch.enabled=true", "--set", "global.imageRegistry=mirror.example")
    text = helm("template", "polyarch", str(parent), *LOCAL, *given)
    assert comparable(each for each in yaml.safe_load_all(text) if each) == comparable(wanted(ChartValues()))
    assert not helm("template", "polyarch", str(parent), *LOCAL, "--set", "polyarch.enabled=false").strip()


@pytest.mark.req("IN-010")
def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    done = helm.run("template", "polyarch", str(CHART), "--kube-version", "1.29.0")
    assert "1.30" in done.stderr


@pytest.mark.req("IN-010")
def test_definitions_come_with_it_or_as_templates_that_are_kept(helm: Helm) -> None:
    plain = {each["metadata"]["name"]: each for each in helm.rendered("--include-crds") if is_definition(each)}
    everything = documents(ChartValues(components=get_args(ComponentName)))
    assert plain == {each["metadata"]["name"]: each for each in everything if is_definition(each)}
    made = {each["metadata"]["name"]: each for each in documents(ChartValues()) if is_definition(each)}
    assert not [each for each in helm.rendered() if is_definition(each)]
    options = ("--set", "crds.enabled=true", "--skip-crds")
    templated = {each["metadata"]["name"]: each for each in helm.rendered(*options) if is_definition(each)}
    for name, each in templated.items():
        assert each["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
        if not each["metadata"]["annotations"]:
            del each["metadata"]["annotations"]
        assert each == made[name]
    assert templated.keys() == made.keys()


def is_definition(document: Document) -> bool:
    return bool(document["kind"] == "CustomResourceDefinition")


@pytest.mark.req("IN-010")
def test_it_has_no_hooks(helm: Helm) -> None:
    rendered = helm.rendered("--values", str(FILES["everything"]))
    assert not [each for each in rendered if "helm.sh/hook" in (each["metadata"].get("annotations") or {})]


@pytest.mark.req("IN-010")
def test_it_has_the_version_and_the_dashboards_of_polyarch(helm: Helm) -> None:
    chart = yaml.safe_load(helm("show", "chart", str(CHART)))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    found = [each for each in helm.rendered("--set", "dashboards.enabled=true") if is_dashboard(each)]
    expected = [finished(each.config_map(NAMESPACE)) for each in DASHBOARDS]
    assert comparable(found) == comparable(expected)


@pytest.mark.req("IN-010")
def test_component_taints_is_its_object_and_nothing_else(helm: Helm) -> None:
    """As `polyarch install --component taints`; all else is the operator's to make."""
    rendered = helm.rendered("--set", "components={taints}", "--set", "taints.configuration.mode=both")
    made = [each for each in rendered if each["kind"] in {"ArchitectureTaints", "ClusterPodPlacementConfig"}]
    assert [(each["kind"], each["metadata"]["name"], each["spec"]) for each in made] == [
        ("ArchitectureTaints", "cluster", {"mode": "both"})
    ]


@pytest.mark.req("BD-002", "BD-331")
def test_component_builds_brings_its_definitions_rights_and_the_flags(helm: Helm) -> None:
    """As `polyarch install --component builds`; the builder itself is the operator's to make."""
    chosen = ("--set", "components={builds}", "--set", "builds.maxActiveJobs=7")
    rendered = helm.rendered(*chosen)
    settings = ChartValues(components=("builds",), builds=Builds(max_active_jobs=7))
    assert comparable(rendered) == comparable(wanted(settings))
    templated = ("--set", "crds.enabled=true", "--skip-crds")
    defined = [each["metadata"]["name"] for each in helm.rendered(*templated, *chosen) if is_definition(each)]
    assert {"imagebuilds.polyarch.dev", "imagebuildruns.polyarch.dev"} <= {*defined}
    assert "imagebuild" not in str(helm.rendered(*templated))


@pytest.mark.req("BD-331")
def test_machine_os_images_bring_their_rights_where_they_are_wanted(helm: Helm) -> None:
    """With `auto` on OpenShift alone; without the component never."""
    cases: list[tuple[MachineOS, bool]] = [("on", False), ("auto", False), ("auto", True)]
    for mode, openshift in cases:
        builds = Builds(machine_os=mode, machine_os_namespace="machines")
        chosen = ("--set-string", f"builds.machineOs={mode},builds.machineOsNamespace=machines")
        options = (*chosen, "--set", "components={builds}", *(OPENSHIFT if openshift else ()))
        settings = ChartValues(components=("builds",), builds=builds)
        assert comparable(helm.rendered(*options)) == comparable(wanted(settings, openshift=openshift))
    without = comparable(helm.rendered("--set-string", "builds.machineOs=on"))
    assert without == comparable(wanted(ChartValues(builds=Builds(machine_os="on"))))
    assert "machineos" not in str(without)


@pytest.mark.req("IN-010", "NO-120")
def test_component_numa_brings_its_definitions_rights_and_objects(helm: Helm) -> None:
    """As templates they are there with the component alone, as another operator may have its own."""
    group = "nodetopology.openshift.io"
    served = ("--api-versions", f"multiarch.openshift.io/v1beta1,{group}/v1")
    templated = ("--set", "crds.enabled=true", "--skip-crds", *served)
    assert group not in str(helm.rendered(*templated))
    rendered = helm.rendered(*templated, "--set", "components={numa}", "--set", "numa.scheduler.replicas=1")
    definitions = [each["metadata"]["name"] for each in rendered if is_definition(each)]
    assert {f"numaresourcesoperators.{group}", f"numaresourcesschedulers.{group}"} <= {*definitions}
    made = [(each["kind"], each["metadata"]["name"]) for each in rendered if each["apiVersion"] == f"{group}/v1"]
    assert made == [
        ("NUMAResourcesOperator", "numaresourcesoperator"),
        ("NUMAResourcesScheduler", "numaresourcesscheduler"),
    ]
