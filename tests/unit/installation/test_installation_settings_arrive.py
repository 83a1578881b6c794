"""Every value of an installation arrives: in its objects, in the operator's flags, in what the operator makes, in the
flags of the roles.

A value that is accepted and dropped on its way says nothing. So no value is named here: which there are comes from the
types and from the values files of the chart, and every one of them is changed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from polyarch.cli import main
from polyarch.cli.roles.commands import RoleChoice
from polyarch.installation import objects, operator
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.manager import Role
from polyarch.operator.components import builds_objects as builds
from polyarch.operator.components import numa_exporter_plan as numa
from polyarch.operator.components import placement_objects
from polyarch.operator.components import placement_objects as placement
from polyarch.operator.components import taints_objects as taints
from polyarch.operator.components.numa_facts import ExporterFacts, NodeLabels
from polyarch.operator.settings import ASKING_ROLES, ClusterCapabilities, OperatorSettings
from polyarch.placement.api import ClusterPodPlacementConfig
from polyarch.placement.settings import SettingsTable
from polyarch.run import process
from polyarch.run.settings import RunSettings
from polyarch.taints.settings import TaintSettings

pytestmark = pytest.mark.req("NE-131")

Json = dict[str, Any]
Names = tuple[str, ...]
CHART = Path(__file__).parents[3] / "deploy" / "chart"
CHARTS_OWN = {"crds", "dashboards"}
FILES = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))]
(EVERYTHING,) = [each for each in FILES if len(each.get("components", ())) == 4]


# -- from the values to the objects ------------------------------------------------------------------------------------


def leaves(of: type[msgspec.Struct], above: Names = ()) -> Iterator[Names]:
    """The values that there are, by their names in a file."""
    for each in msgspec.inspect.type_info(of).fields:  # type: ignore[attr-defined]
        inner = each.type.type if isinstance(each.type, msgspec.inspect.Metadata) else each.type
        if isinstance(inner, msgspec.inspect.StructType):
            yield from leaves(inner.cls, (*above, each.encode_name))
        else:
            yield (*above, each.encode_name)


LEAVES = list(leaves(InstallationSettings))


def at(document: Any, path: Names) -> Any:
    """What is there; None if nothing is."""
    for name in path:
        document = (document or {}).get(name)
    return document


def with_value(document: Json, path: Names, value: Any) -> Json:
    first, *rest = path
    return {**document, first: with_value(document.get(first) or {}, tuple(rest), value) if rest else value}


def made(values: Json) -> list[Json]:
    return list(objects.documents(msgspec.convert(values, InstallationSettings), namespace="tools"))


@pytest.mark.req("IN-010")
@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_every_value_changes_the_objects_of_an_installation(path: Names) -> None:
    """Among all others as in the values files, or by itself: a digest wins over a tag, a ConfigMap over texts."""
    usual = at(msgspec.to_builtins(InstallationSettings()), path)
    others = [found for each in FILES if (found := at(each, path)) not in (None, usual)]
    assert others, "no file of deploy/chart/ci has it with another value"
    rest = {name: each for name, each in EVERYTHING.items() if name not in CHARTS_OWN}
    pairs = [(base, with_value(base, path, value)) for base in ({}, with_value(rest, path, usual)) for value in others]
    assert any(made(before) != made(after) for before, after in pairs)


TEMPLATES = {each.name: each.read_text() for each in (CHART / "templates").rglob("*") if each.is_file()}
VARIABLES = {
    f"POLYARCH_{name}": (expression, usual)
    for name, expression, usual in re.findall(r'\(list "([A-Z_]+)" (.+) "(.*)"\)', TEMPLATES["_helpers.tpl"])
}
"""What the chart writes into the environment: an expression, and the text that is left out."""


@pytest.mark.req("IN-010")
@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_every_value_is_read_by_a_template_of_the_chart(path: Names) -> None:
    """Helm itself says whether it is read rightly; here a value that only ``polyarch install`` knows is found."""
    *above, name = path
    within = f"with .Values.{'.'.join(above)} "
    assert any(
        re.search(rf"[$.][vV]alues\.{re.escape('.'.join(path))}\b", text)
        or (above and within in text and re.search(rf"[ (!]\.{name}\b", text))
        for text in TEMPLATES.values()
    )


def test_the_chart_the_installer_and_the_operator_take_the_same_roles_with_an_identity() -> None:
    """The operator would not start with any other."""
    schema = msgspec.json.decode((CHART / "values.schema.json").read_bytes())
    taken = schema["$defs"]["CloudIdentity"]["properties"]["roles"]["propertyNames"]
    assert taken == {"enum": list(ASKING_ROLES)}
    given = {"registries": {"identity": {"roles": {role: {"a": "b"} for role in ASKING_ROLES}}}}
    settings = msgspec.convert(given, InstallationSettings)
    assert len(settings.registries.identity.account_annotations) == len(ASKING_ROLES)


@pytest.mark.req("IN-030")
@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_the_chart_writes_every_variable_that_the_installer_writes_for_a_value(path: Names) -> None:
    usual = InstallationSettings()
    without_it = operator.environment(usual.operator_settings("tools"))
    for value in (at(each, path) for each in FILES):
        if value is not None:
            changed = msgspec.convert(with_value({}, path, value), InstallationSettings)
            written = operator.environment(changed.operator_settings("tools"))
            assert {name for name in written if written[name] != without_it.get(name)} <= {*VARIABLES}


@pytest.mark.req("IN-030")
def test_the_chart_leaves_out_what_is_usual_for_the_operator(
    started: list[RunSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMA is said always, as a patch may change it."""
    for name, (_, usual) in VARIABLES.items():
        if name != "POLYARCH_NUMA" and usual:
            monkeypatch.setenv(name, usual)
    assert main(["run", "operator"]) == 0
    left_out = started.pop().operator
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "operator"]) == 0
    assert left_out == started.pop().operator


# -- from the objects to the operator ----------------------------------------------------------------------------------

OTHER = OperatorSettings(
    namespace="tools",
    image="r.example/p:2",
    image_pull_policy="Always",
    image_pull_secrets=("mirror", "other"),
    certificates="cert-manager",
    resource_webhooks="olm",
    network_policies=False,
    admission_policies=False,
    webhook_replicas=5,
    controller_replicas=4,
    handler_replicas=6,
    taints_replicas=7,
    global_pull_secret=("secrets", "everywhere"),
    registries_configmap="mirrors",
    credential_provider_image="r.example/plugins:1",
    credential_provider_directory="/plugins",
    credential_provider_mount="imageVolume",
    service_account_annotations=("eks.amazonaws.com/role-arn=arn", "builder:eks.amazonaws.com/role-arn=other"),
    role_pod_labels=("azure.workload.identity/use=true",),
    allow_addresses=("10.0.0.0/8", "192.168.0.0/16"),
    deny_addresses=("10.96.0.0/12", "fd00::/8"),
    secret_access="none",
    proxies=(("HTTPS_PROXY", "http://p"),),
    priority_class="",
    node_selector=("infra=yes", "zone=a"),
    tolerations=("infra:NoSchedule", "dedicated=infra"),
    builds="on",
    builder_replicas=3,
    builder_image="r.example/buildah:1",
    push_image="r.example/push:1",
    arch_taint_keys=("arch", "more"),
    allow_privileged_builds=True,
    max_active_jobs=9,
    machine_os="on",
    machine_os_namespace="machines",
    numa="on",
    platform="kubernetes",
    numa_namespace="cells",
    manage_namespace=True,
    kubelet_root="/srv/kubelet",
)
"""Every setting is another than usual."""
FIELDS = [each.name for each in msgspec.structs.fields(OperatorSettings)]
OF_ITS_POD = {"namespace", "image", "image_pull_policy", "image_pull_secrets", "proxies"}
"""What the operator takes from its own pod, and the installer does not write as flags."""
NOT_OF_THE_INSTALLER = {"resource_webhooks", "push_image", "arch_taint_keys"}
"""Flags without a value in the chart."""


def without(settings: OperatorSettings, name: str) -> OperatorSettings:
    return msgspec.structs.replace(settings, **{name: getattr(OperatorSettings(), name)})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunSettings]:
    """What would have been run."""
    runs: list[RunSettings] = []

    async def run(_: str, __: tuple[Role, ...], settings: RunSettings) -> None:
        runs.append(settings)

    monkeypatch.setattr(process, "run", run)
    for name in [each for each in os.environ if each.startswith("POLYARCH_")]:
        monkeypatch.delenv(name)
    return runs


def test_every_setting_of_the_operator_is_changed_here() -> None:
    assert [name for name in FIELDS if getattr(OTHER, name) == getattr(OperatorSettings(), name)] == []


@pytest.mark.req("IN-030")
def test_what_the_installer_writes_into_the_environment_is_what_the_operator_reads(
    started: list[RunSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in operator.environment(OTHER).items():
        monkeypatch.setenv(name, value)
    assert main(["run", "operator"]) == 0
    ((settings),) = [each.operator for each in started]
    lost = [name for name in FIELDS if getattr(settings, name) != getattr(OTHER, name)]
    assert {*lost} == OF_ITS_POD | NOT_OF_THE_INSTALLER


@pytest.mark.req("IN-030")
def test_every_setting_of_the_operator_has_a_flag(started: list[RunSettings]) -> None:
    """Also those that the installer does not write."""
    flags = ["--push-image=r.example/push:1", "--arch-taint-key=arch", "--arch-taint-key=more"]
    flags += ["--resource-webhooks=olm", "--namespace=tools", "--image=r.example/p:2", "--image-pull-policy=Always"]
    flags += ["--image-pull-secret=mirror", "--image-pull-secret=other"]
    assert main(["run", "operator", *flags]) == 0
    settings = started[0].operator
    for name in (OF_ITS_POD | NOT_OF_THE_INSTALLER) - {"proxies"}:
        assert getattr(settings, name) == getattr(OTHER, name)


# -- from the operator to what it makes --------------------------------------------------------------------------------

CLUSTER = ClusterCapabilities(openshift=True, monitoring=True, version=(1, 33))
MONITORED = {"spec": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}}
GROUP = {"poolName": "all", "nodeSelector": {"matchLabels": {"zone": "a"}}}


def of_all_features(settings: OperatorSettings) -> list[Any]:
    """What the operator makes of one cluster in which everything is turned on."""
    configuration = msgspec.convert(MONITORED, ClusterPodPlacementConfig)
    table = SettingsTable.of(None, configuration, operator_namespace=settings.namespace)
    observed = ExporterFacts(
        object={"metadata": {"name": "numaresourcesoperator", "generation": 1}, "spec": {"nodeGroups": [GROUP]}},
        settings=settings,
        nodes=(NodeLabels("one", {"zone": "a"}),),
        namespace_labels={"pod-security.kubernetes.io/enforce": "privileged"},
    )
    planned = numa.plan_exporters(observed)
    return [
        *placement.placement_operands(settings, CLUSTER, configuration, table, owner=None),
        *taints.taints_operands(settings, CLUSTER, TaintSettings()),
        *builds.builds_operands(settings, CLUSTER),
        *placement_objects.resource_webhooks(settings, b"", owner=None),
        *(planned.documents or ()),
        planned.namespace,
    ]


SWITCHES = {"builds", "numa", "platform", "resource_webhooks"}
"""They decide whether something is made at all; tests of ``run.operator`` and of the reconcilers have them."""


@pytest.mark.req("IN-010")
@pytest.mark.parametrize("name", [each for each in FIELDS if each not in SWITCHES])
def test_every_setting_of_the_operator_changes_what_it_makes(name: str) -> None:
    assert of_all_features(OTHER) != of_all_features(without(OTHER, name))


# -- from what it makes to the roles -----------------------------------------------------------------------------------


ROLES = {each.label for each in RoleChoice}
"""Those of ``polyarch run``; the exporter's and the extender's flags are theirs alone, and tested there."""


def containers() -> Iterator[Json]:
    for each in of_all_features(msgspec.structs.replace(OTHER, network_policies=True)):
        if each is not None and each["kind"] in {"Deployment", "DaemonSet"}:
            several = each["spec"]["template"]["spec"]["containers"]
            yield from (one for one in several if one["args"][1] in ROLES)


CONTAINERS = {f"{each['args'][1]} {each['name']}": each for each in containers()}
AS_USUAL = {"--side=handler"}
"""Flags that say what is so without them, too."""


@pytest.mark.req("IN-030")
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_flag_that_a_role_is_given_is_one_of_its_own(
    started: list[RunSettings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Without it the role would run with something else, or not at all."""
    pod = {"POD_NAMESPACE": "tools", "POD_IP": "10.1.2.3", "NODE_NAME": "worker-1", "POD_NAME": "x"}
    words: list[str] = CONTAINERS[name]["args"]
    for variable, value in pod.items():
        words = [each.replace(f"$({variable})", value) for each in words]
    words = [each.replace("/etc/polyarch/registries", str(tmp_path)) for each in words]
    (tmp_path / "ca.crt").touch()
    providers = EVERYTHING["registries"]["credentialProviders"]["configuration"]
    (tmp_path / "credential-providers.yaml").write_text(providers)
    assert main(words) == 0, words
    usual = started.pop()
    for flag in set(words[2:]) - AS_USUAL:
        done = main([each for each in words if each != flag])
        assert done or started.pop() != usual, f"{flag} changes nothing"
