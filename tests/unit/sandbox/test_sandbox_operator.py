"""What polyarch's installation in a sandbox is made of."""

from pathlib import Path

import pytest

import polyarch.sandbox
from polyarch.installation import objects
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.placement import names
from polyarch.run import placement_controller, placement_webhook
from polyarch.sandbox import operator
from polyarch.sandbox.control_plane import Layout
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.state import Folder, Ports, Settings
from polyarch.sandbox.versions import host_architecture

pytestmark = pytest.mark.req("IN-031")

MIRRORS = '[[registry]]\nprefix = "docker.io"\nlocation = "127.0.0.1:5000/docker.io"\ninsecure = true\n'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    ports = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, registry=6, registry_storage=7)
    folder = Folder(tmp_path / "trial")
    folder.root.mkdir()
    folder.registries_conf.write_text(MIRRORS)
    return Layout(folder, ports, {}, {"HTTPS_PROXY": "http://proxy.example:3128", "EDITOR": "vi"})


@pytest.mark.req("SB-014")
def test_every_role_has_as_many_replicas_as_were_asked_for(layout: Layout) -> None:
    """``polyarch up`` waited for ever for the two replicas of taints to become one."""
    made = operator.installation(layout, Settings(replicas=1)).operator_settings("polyarch-system")
    assert {made.webhook_replicas, made.controller_replicas, made.handler_replicas, made.taints_replicas} == {1}


@pytest.mark.req("SB-014")
def test_the_installation_differs_from_the_usual_one_only_in_values(layout: Layout) -> None:
    made = objects.documents(operator.installation(layout, Settings(replicas=2)))
    usual = objects.documents(objects.InstallationSettings())
    named = [(each["kind"], each["metadata"]["name"]) for each in made]
    assert set(named) - {(each["kind"], each["metadata"]["name"]) for each in usual} == {
        ("ConfigMap", "polyarch-registries")
    }
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["POLYARCH_WEBHOOK_REPLICAS"] == environment.get("POLYARCH_CONTROLLER_REPLICAS", "2") == "2"
    assert environment["POLYARCH_ALLOW_ADDRESS"] == "127.0.0.0/8"
    assert environment["POLYARCH_REGISTRIES_CONFIGMAP"] == "polyarch-registries"
    assert environment["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert "EDITOR" not in environment


@pytest.mark.req("SB-005")
def test_registries_and_authorities_of_the_user_reach_the_roles_in_a_config_map(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    made = objects.documents(operator.installation(layout, Settings(ca=str(tmp_path / "ca.pem"))))
    (configuration,) = [each for each in made if each["kind"] == "ConfigMap"]
    assert configuration["metadata"]["namespace"] == DEFAULT_NAMESPACE
    assert configuration["data"] == {"registries.conf": MIRRORS, "ca.crt": "-----BEGIN CERTIFICATE-----\n"}
    (plain,) = [
        each for each in objects.documents(operator.installation(layout, Settings())) if each["kind"] == "ConfigMap"
    ]
    assert set(plain["data"]) == {"registries.conf"}


@pytest.mark.req("SB-014")
def test_the_sandbox_has_no_list_of_roles_and_their_rights() -> None:
    roles = (names.WEBHOOK, names.CONTROLLER, placement_webhook.ROLE.name, placement_controller.ROLE.name)
    room = Path(polyarch.sandbox.__file__).parent
    found = [
        f"{path.relative_to(room)}: {role}"
        for path in room.rglob("*.py")
        for role in roles
        if role in path.read_text(encoding="utf-8")
    ]
    assert found == []


@pytest.mark.req("SB-014")
@pytest.mark.parametrize("nodes", [{}, {"amd64": 0}, {"riscv64": 3}], ids=["none", "zero", "of another architecture"])
def test_without_a_node_for_its_pods_polyarch_is_not_waited_for(nodes: dict[str, int]) -> None:
    with pytest.raises(SandboxError, match="--only control-plane"):
        operator.check(Settings(nodes=nodes))
    operator.check(Settings(nodes=nodes | {"arm64": 1}))


@pytest.mark.req("SB-014", "SB-021")
def test_polyarch_runs_on_real_nodes_of_the_machines_architecture_alone() -> None:
    """Its image is made of this installation."""
    here = host_architecture()
    emulated = {"amd64": "arm64"}.get(here, "amd64")
    said = rf"an architecture of its image \({here}\): add one with --nodes {here}=1,{emulated}=2, or"
    with pytest.raises(SandboxError, match=said):
        operator.check(Settings(nodes={emulated: 2, here: 0}, real=True))
    operator.check(Settings(nodes={emulated: 2, here: 1}, real=True))
    operator.check(Settings(nodes={emulated: 2}))


@pytest.mark.req("SB-014")
@pytest.mark.parametrize("replicas", [0, 11])
def test_a_number_of_replicas_that_makes_no_sense_is_refused(replicas: int) -> None:
    with pytest.raises(SandboxError, match="--replicas"):
        Settings(replicas=replicas)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("settings", "scheduler"),
    [
        (Settings(), None),
        (Settings(numa=NumaLayout.parse("2x8")), {"replicas": 1}),
        (Settings(numa=NumaLayout.parse("2x8"), replicas=2), {"replicas": 2}),
        (Settings(numa=NumaLayout.parse("2x8"), replicas=3, nodes={"amd64": 2}), {"replicas": 2}),
    ],
    ids=["without cells", "with cells", "two replicas", "more replicas than nodes"],
)
def test_nodes_with_cells_get_the_scheduler_of_cells(
    layout: Layout, settings: Settings, scheduler: dict[str, int] | None
) -> None:
    made = operator.installation(layout, settings)
    assert made.has_numa is (scheduler is not None)
    found = [each["spec"] for each in objects.documents(made) if each["kind"] == SCHEDULERS.kind]
    assert found == ([scheduler] if scheduler is not None else [])
