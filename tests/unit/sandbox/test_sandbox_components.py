"""Command lines of the control plane."""

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from polyarch.sandbox import control_plane
from polyarch.sandbox.control_plane import Layout
from polyarch.sandbox.network import egress_socket
from polyarch.sandbox.processes import Command
from polyarch.sandbox.services import nodes_command, registry_commands
from polyarch.sandbox.state import Folder, Ports, Settings, State
from polyarch.sandbox.versions import KUBERNETES, PROGRAMS, Module

PORTS = Ports(
    etcd=1001,
    etcd_peer=1002,
    apiserver=1003,
    controller_manager=1004,
    scheduler=1005,
    registry=1006,
    registry_storage=1007,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    binaries = {program.name: Path("/binaries") / program.name for program in PROGRAMS}
    return Layout(Folder(tmp_path / "trial"), PORTS, binaries, {"PATH": "/bin"})


def commands(layout: Layout) -> list[Command]:
    makers = (
        control_plane.etcd,
        control_plane.kube_apiserver,
        control_plane.kube_controller_manager,
        control_plane.kube_scheduler,
    )
    return [make(layout) for make in makers]


@pytest.mark.req("SB-001")
def test_every_pinned_program_is_started(layout: Layout) -> None:
    started = {command.name for command in commands(layout)} | {registry_commands(layout)[0].name}
    assert started == {program.name for program in PROGRAMS}


@pytest.mark.req("SB-020")
def test_another_version_restarts_what_is_of_kubernetes_and_the_nodes_and_nothing_else(layout: Layout) -> None:
    newer = replace(layout, kubernetes="1.33.13")

    def inputs(of: Layout) -> dict[str, str]:
        return {
            each.name: each.inputs for each in [*commands(of), *registry_commands(of), nodes_command(of, Settings())]
        }

    before, after = inputs(layout), inputs(newer)
    assert {name for name in before if before[name] != after[name]} == {
        *(program.name for program in PROGRAMS if program.module is Module.KUBERNETES),
        "nodes",
    }


@pytest.mark.req("SB-020")
@pytest.mark.parametrize(
    ("version", "path"), [("1.30.14", "/healthz"), ("1.33.13", "/readyz"), (KUBERNETES, "/readyz")]
)
def test_a_scheduler_that_has_no_page_for_readiness_is_asked_for_health(
    layout: Layout, version: str, path: str
) -> None:
    probe = control_plane.probes(replace(layout, kubernetes=version))["kube-scheduler"]
    assert probe.url == f"https://127.0.0.1:1005{path}"


@pytest.mark.req("SB-008")
def test_no_command_line_names_an_address_but_loopback(layout: Layout) -> None:
    for command in [*commands(layout), *registry_commands(layout)]:
        text = " ".join(command.arguments)
        found = set(re.findall(r"(?<![\d.])\d+\.\d+\.\d+\.\d+(?!/)", text))
        assert found <= {"127.0.0.1"}, command.name
        assert "0.0.0.0" not in text


@pytest.mark.req("SB-012")
def test_the_cluster_selection_leads_to_the_socket_of_the_egress_proxy(layout: Layout) -> None:
    document = control_plane.configuration_files(layout)["egress.json"]
    assert isinstance(document, dict)
    (selection,) = document["egressSelections"]
    assert selection["name"] == "cluster"
    assert selection["connection"]["transport"]["uds"]["udsName"] == egress_socket(layout.folder.root)
    assert (
        f"--egress-selector-config-file={layout.configuration('egress.json')}"
        in control_plane.kube_apiserver(layout).arguments
    )


@pytest.mark.req("SB-003")
@pytest.mark.parametrize(
    "flag", ["--authorization-mode=Node,RBAC", "--anonymous-auth=false", "--enable-admission-plugins=NodeRestriction"]
)
def test_rbac_is_on_and_nobody_is_anonymous(layout: Layout, flag: str) -> None:
    assert flag in control_plane.kube_apiserver(layout).arguments


@pytest.mark.req("SB-003")
def test_the_audit_log_has_who_and_when_and_no_bodies(layout: Layout) -> None:
    policy = control_plane.audit_policy()
    assert policy["rules"] == [{"level": "Metadata"}]
    assert policy["omitStages"] == ["RequestReceived"]
    assert f"--audit-log-path={layout.folder.audit_log}" in control_plane.kube_apiserver(layout).arguments


@pytest.mark.req("SB-003")
def test_etcd_wants_a_certificate_from_clients_and_peers(layout: Layout) -> None:
    arguments = control_plane.etcd(layout).arguments
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(arguments)
    assert not [argument for argument in arguments if "http://" in argument]


@pytest.mark.req("SB-009")
def test_pods_find_the_api_server_where_a_proxy_stands_and_the_nodes_restart_to_tell_them(
    layout: Layout,
) -> None:
    without, behind = Settings(), Settings(api_server_of_pods="https://127.0.0.1:999")
    found = [State(settings=each, ports=PORTS).api_server_of_pods for each in (without, behind)]
    assert found == ["https://127.0.0.1:1003", "https://127.0.0.1:999"]
    layout.folder.registries_conf.parent.mkdir()
    layout.folder.registries_conf.write_text("")
    assert nodes_command(layout, without).inputs == nodes_command(layout, Settings()).inputs
    assert nodes_command(layout, without).inputs != nodes_command(layout, behind).inputs


@pytest.mark.req("SB-004")
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE"])
def test_nodes_restart_where_a_proxy_has_changed(layout: Layout, name: str) -> None:
    layout.folder.registries_conf.parent.mkdir()
    layout.folder.registries_conf.write_text("")

    def started_from(**environ: str) -> str:
        return nodes_command(msgspec.structs.replace(layout, environ=environ), Settings()).inputs

    assert started_from(TERM="a") == started_from(TERM="b"), "what no registry is asked by"
    assert len({started_from(), started_from(**{name: "http://one"}), started_from(**{name: "http://two"})}) == 3
