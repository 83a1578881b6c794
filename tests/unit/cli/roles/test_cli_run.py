"""``polyarch run``: what the flags mean, and what wrong ones get."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from polyarch.cli import main
from polyarch.cli.roles.commands import RoleChoice
from polyarch.cli.roles.reexec import PROGRAM
from polyarch.cli.roles.role_process import main as played
from polyarch.cli.roles.role_process import roles_of
from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.manager import Role
from polyarch.kube.settings import ProcessSettings
from polyarch.operator.settings import MACHINE_OS_NAMESPACE, OperatorSettings
from polyarch.run import process
from polyarch.run.logs import Verbosity
from polyarch.run.settings import BuilderSettings, MonitorSettings, RegistrySettings, RunSettings, TaintRoleSettings

Started = list[tuple[str, tuple[str, ...], RunSettings]]


@pytest.fixture
def started(monkeypatch) -> Started:
    """What would have been run."""
    runs: Started = []

    async def run(name: str, roles: tuple[Role, ...], settings: RunSettings) -> None:
        runs.append((name, tuple(role.name for role in roles), settings))

    monkeypatch.setattr(process, "run", run)
    return runs


@pytest.mark.req("PL-002", "PL-530")
def test_the_defaults_are_those_of_a_deployment(started):
    assert main(["run", "placement-controller"]) == 0
    ((name, roles, settings),) = started
    assert (name, roles) == ("placement-controller", ("placement-controller",))
    assert settings == RunSettings()
    own = settings.process
    assert (own.namespace, own.port, own.metrics_port, own.health_port) == ("polyarch-system", 9443, 8443, 8081)
    assert own.leader_elect


@pytest.mark.req("PL-423", "PL-424", "RG-103")
def test_every_flag_reaches_the_process(started, tmp_path):
    arguments = [
        *("run", "placement-webhook", "--namespace", "ns", "--kubeconfig", "K", "--context", "C"),
        *("--cert-dir", "/certs", "--port", "0", "--metrics-port", "1", "--health-port", "2", "--bind="),
        *("--global-pull-secret-namespace", "a", "--global-pull-secret-name", "b", "--registries-conf", "R"),
        *(
            "--ca",
            "x.pem",
            "--ca",
            "y.pem",
            "--allow-address",
            "127.0.0.0/8",
            "--deny-address",
            "10.0.0.0/8",
            "--no-leader-elect",
        ),
        *("--log-format", "console"),
    ]
    assert main(arguments) == 0
    ((name, roles, settings),) = started
    assert (name, roles) == ("placement-webhook", ("placement-webhook",))
    assert settings == RunSettings(
        process=ProcessSettings(
            namespace="ns",
            bind="",
            port=0,
            metrics_port=1,
            health_port=2,
            cert_dir="/certs",
            leader_elect=False,
        ),
        kubeconfig="K",
        context="C",
        log_format="console",
        registries=RegistrySettings(
            global_pull_secret=("a", "b"),
            registries_conf="R",
            ca=("x.pem", "y.pem"),
            allow_addresses=("127.0.0.0/8",),
            deny_addresses=("10.0.0.0/8",),
        ),
        operator=OperatorSettings(
            namespace="ns",
            image="",
            image_pull_policy=None,
            global_pull_secret=("a", "b"),
            allow_addresses=("127.0.0.0/8",),
            deny_addresses=("10.0.0.0/8",),
        ),
    )


@pytest.mark.req("PL-500", "PL-540")
def test_every_flag_of_the_operator_reaches_it(started):
    """Without a directory it takes its certificate from the Secret that its leader makes."""
    arguments = [
        *("run", "operator", "--namespace", "ns", "--image", "example.com/p:1", "--image-pull-policy", "Always"),
        *("--image-pull-secret", "one", "--image-pull-secret", "two", "--certificates", "cert-manager"),
        *("--no-network-policies", "--no-admission-policies", "--webhook-replicas", "5", "--controller-replicas", "3"),
        *("--handler-replicas", "4", "--registries-configmap", "mirrors", "--allow-address", "10.0.0.0/8"),
        *(
            "--resource-webhooks",
            "olm",
            "--priority-class=",
            "--node-selector",
            "infra=",
            "--toleration",
            "infra:NoSchedule",
        ),
    ]
    assert main(arguments) == 0
    ((_, roles, settings),) = started
    assert roles == ("operator",)
    assert settings.process.cert_secret == "polyarch-certificates"
    assert settings.operator == OperatorSettings(
        namespace="ns",
        image="example.com/p:1",
        image_pull_policy="Always",
        image_pull_secrets=("one", "two"),
        certificates="cert-manager",
        resource_webhooks="olm",
        network_policies=False,
        admission_policies=False,
        webhook_replicas=5,
        controller_replicas=3,
        handler_replicas=4,
        registries_configmap="mirrors",
        allow_addresses=("10.0.0.0/8",),
        priority_class="",
        node_selector=("infra=",),
        tolerations=("infra:NoSchedule",),
    )


@pytest.mark.req("BD-002")
def test_whether_machine_os_images_are_built_reaches_the_operator(started):
    """Off by default, in the namespace of OpenShift's machine config operator."""
    assert main(["run", "operator", "--machine-os", "auto", "--machine-os-namespace", "machines"]) == 0
    assert main(["run", "operator"]) == 0
    given, usual = (settings.operator for _, _, settings in started)
    assert (given.machine_os, given.machine_os_namespace) == ("auto", "machines")
    assert (usual.machine_os, usual.machine_os_namespace) == ("off", MACHINE_OS_NAMESPACE)


@pytest.mark.req("BD-002", "BD-140", "BD-151", "BD-154")
def test_every_flag_of_the_builder_reaches_it(started):
    """Also those that the operator takes for the builder that it deploys."""
    arguments = [
        *("run", "builder", "--builder-image", "example.com/b:1", "--push-image", "example.com/p:1"),
        *("--allow-privileged-builds", "--arch-taint-key", "a", "--arch-taint-key", "b", "--max-active-jobs", "7"),
        *("--machine-os", "off", "--machine-os-namespace", "machines"),
    ]
    assert main(arguments) == 0
    assert main(["run", "builder"]) == 0
    given, usual = (settings.builder for _, _, settings in started)
    assert given == BuilderSettings(
        builder_image="example.com/b:1",
        push_image="example.com/p:1",
        allow_privileged=True,
        arch_taint_keys=("a", "b"),
        max_active_jobs=7,
        machine_os="off",
        machine_os_namespace="machines",
    )
    assert usual == BuilderSettings()


@pytest.mark.req("BD-002", "BD-151", "BD-154")
def test_the_operator_takes_the_flags_of_its_builder(started):
    words = ["--builder-image", "example.com/b:1", "--allow-privileged-builds", "--max-active-jobs", "7"]
    words += ["--push-image", "example.com/p:1", "--arch-taint-key", "a", "--arch-taint-key", "b"]
    assert main(["run", "operator", *words]) == 0
    ((_, _, settings),) = started
    own = settings.operator
    assert (own.builder_image, own.allow_privileged_builds, own.max_active_jobs) == ("example.com/b:1", True, 7)
    assert (own.push_image, own.arch_taint_keys) == ("example.com/p:1", ("a", "b"))


@pytest.mark.req("PL-541")
def test_the_operators_certificate_is_where_the_service_ca_writes_it(started):
    assert main(["run", "operator", "--certificates", "service-ca"]) == 0
    assert started[0][2].process.cert_secret == "polyarch-operator-certificates"


@pytest.mark.req("KR-050")
def test_all_is_every_role_of_the_cluster_in_one_process(started):
    """A tuple of roles."""
    assert main(["run", "all", "--cert-dir", "/certs"]) == 0
    ((name, roles, _),) = started
    assert name == "all"
    assert roles == ("placement-webhook", "placement-controller", "taints")


@pytest.mark.req("KR-050")
@pytest.mark.parametrize("choice", RoleChoice, ids=lambda choice: choice.label)
def test_a_process_is_started_with_all_that_its_roles_read(choice):
    """What a role asks its process for is there."""
    roles = roles_of(choice.value)
    for role in roles:
        given = {RegistrySettings, OperatorSettings, MonitorSettings, TaintRoleSettings, BuilderSettings, Verbosity}
        assert set(role.settings) <= given, "what polyarch.run.process gives"
    if len(choice.value) == 1:
        assert [role.name for role in roles] == [choice.label]


class Replaced(Exception):  # noqa: N818 - what happened to the process
    """The process goes on as another program."""


@pytest.fixture
def command(monkeypatch) -> Callable[..., list[str]]:
    """A command line of a process of its own: what it goes on as."""

    def execute(program: str, arguments: list[str]) -> None:
        raise Replaced(program, *arguments)

    def given(*words: str) -> list[str]:
        monkeypatch.setattr(os, "execv", execute)
        monkeypatch.setattr(sys, "argv", ["polyarch", *words])
        with pytest.raises(Replaced) as replaced:
            main()
        return list(replaced.value.args)

    return given


@pytest.mark.req("PL-810")
@pytest.mark.parametrize(
    "words",
    [
        ("operator", "--image", "example.com/p:1", "--toleration", "infra:NoSchedule", "--webhook-replicas", "5"),
        ("placement-webhook", "--cert-dir", "/c", "--bind=", "--ca", "x.pem", "--allow-address", "127.0.0.0/8", "-q"),
        ("placement-controller", "--global-pull-secret-namespace", "a", "--global-pull-secret-name", "b"),
        ("exec-monitor", "--side", "node", "--node-name", "worker-1", "--proc", "/p", "--pod-logs", "/l"),
        ("taints", "--no-leader-elect", "--log-format", "console", "--context", "C", "--kubeconfig", "K"),
        ("all", "--cert-dir", "/c", "--registries-conf", "R", "--port", "0"),
    ],
    ids=lambda words: words[0],
)
def test_a_process_starts_over_with_the_same_settings_and_without_the_command_lines_libraries(started, command, words):
    python, *program, settings = command("run", *words)
    assert python == sys.executable
    assert program == [sys.executable, "-P", "-c", PROGRAM.format(module="role_process")]
    assert started == []
    assert played(settings) == 0
    assert main(["run", *words]) == 0, "where it is not the command line's own process it does not start over"
    assert started[0] == started[1]


def test_flags_that_are_too_long_to_be_passed_on_still_run(started, monkeypatch):
    def execute(program: str, arguments: list[str]) -> None:
        raise OSError(errno.E2BIG, "Argument list too long")

    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(sys, "argv", ["polyarch", "run", "placement-controller", "-n", "ours"])
    assert main() == 0
    assert started[0][2].process.namespace == "ours"


@pytest.mark.req("PL-600")
def test_the_node_side_of_the_monitor(started, capsys):
    """It knows its node."""
    assert main(["run", "exec-monitor", "--side", "node"]) == 2
    assert "--node-name is needed with --side node" in capsys.readouterr().err
    places = ["--tracefs", "/t", "--proc", "/p", "--pod-logs", "/l"]
    flags = ["--side", "node", "--node-name", "worker-1", "--namespace", "ours", *places]
    assert main(["run", "exec-monitor", *flags]) == 0
    ((name, roles, settings),) = started
    assert (name, roles, settings.process.namespace) == ("exec-monitor", ("exec-monitor",), "ours")
    monitor = MonitorSettings(side="node", node_name="worker-1", tracefs="/t", proc="/p", pod_logs="/l")
    assert settings.monitor == monitor
    assert main(["run", "placement-controller", "--side", "node"]) == 0, "another role has no sides"
    assert started[-1][0] == "placement-controller"


@pytest.mark.req("PL-424")
@pytest.mark.parametrize("files", [(), ("registries.conf",), ("ca.crt",), ("registries.conf", "ca.crt")], ids=str)
def test_a_mounted_config_map_of_registries_may_have_either_file(started, tmp_path, files):
    """And flags for single files still count."""
    for name in files:
        (tmp_path / name).touch()
    assert main(["run", "placement-controller", "--registries-dir", str(tmp_path), "--ca", "own.pem"]) == 0
    registries = started[0][2].registries
    assert registries.registries_conf == (str(tmp_path / files[0]) if "registries.conf" in files else None)
    assert registries.ca == ("own.pem", *([str(tmp_path / "ca.crt")] if "ca.crt" in files else ()))


PROVIDERS = """\
{"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": [{"name": "cloud",
 "matchImages": ["*.cloud.example"], "defaultCacheDuration": "1h",
 "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}]}
"""


@pytest.mark.req("IN-042")
@pytest.mark.parametrize("role", ["placement-webhook", "placement-controller", "taints", "builder"])
def test_the_plugins_of_the_registries_config_map(role, started, tmp_path):
    """Its file is used with the directory of the plugins; one without the other is no use, and neither is no plugin."""
    flags = ["run", role, f"--cert-dir={tmp_path}", f"--registries-dir={tmp_path}"]
    directory = "--image-credential-provider-bin-dir=/plugins"
    assert main([*flags, directory]) == 0
    assert started.pop()[2].registries.credential_providers is None
    (tmp_path / "credential-providers.yaml").write_text(PROVIDERS)
    assert main([*flags, directory]) == 0
    found = started.pop()[2].registries.credential_providers
    assert (found.directory, [each.name for each in found.providers]) == ("/plugins", ["cloud"])
    assert main(flags) == 2
    (tmp_path / "credential-providers.yaml").write_text("providers: [")
    assert main([*flags, directory]) == 2


@pytest.mark.req("IN-042", "IN-043")
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--service-account-annotation=key", "expected KEY=VALUE"),
        ("--service-account-annotation=operator:key=value", "no role 'operator'; known: placement-webhook"),
        ("--role-pod-label=key", "expected KEY=VALUE"),
        ("--credential-provider-directory=plugins", "expected an absolute path"),
        ("--credential-provider-directory=/a/../b", "without '..'"),
        ("--credential-provider-mount=copy", "expected an image with the plugins"),
        ("--credential-provider-mount=hostPath", "expected the nodes' directory"),
        ("--credential-provider-mount=csi", "csi"),
    ],
)
def test_settings_of_plugins_that_cannot_be_are_refused_by_the_operator(flag, said, started, capsys):
    assert main(["run", "operator", flag]) == 2
    assert said in capsys.readouterr().err
    assert started == []


@pytest.mark.req("PL-420", "RG-086")
def test_the_kubelets_credential_plugins(started, tmp_path):
    config = tmp_path / "providers.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
        "- {name: ecr, matchImages: ['*.dkr.ecr.*.amazonaws.com'], defaultCacheDuration: 12h,"
        " apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
    )
    flags = ["--image-credential-provider-config", str(config), "--image-credential-provider-bin-dir", "/bin"]
    assert main(["run", "placement-controller", *flags]) == 0
    providers = started[0][2].registries.credential_providers
    assert providers is not None
    assert [provider.name for provider in providers.providers] == ["ecr"]


@pytest.mark.req("PL-751")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run", "placement-webhook"], "--cert-dir is needed"),
        (["run", "all"], "--cert-dir is needed"),
        (["run", "placement-controller", "--global-pull-secret-name", "x"], "go together"),
        (["run", "placement-controller", "--image-credential-provider-config", "x"], "go together"),
        (
            [
                *("run", "placement-controller", "--image-credential-provider-config", "/nonexistent"),
                *("--image-credential-provider-bin-dir", "/bin"),
            ],
            "/nonexistent",
        ),
        (["run", "nobody"], "nobody"),
        (["run", "operator", "--webhook-replicas", "0"], "--webhook-replicas 0"),
        (["run", "operator", "--node-selector", "infra"], "--node-selector infra"),
        (
            ["run", "placement-controller", "--registries-dir", "/nonexistent/files"],
            "--registries-dir /nonexistent/files",
        ),
    ],
)
def test_flags_that_cannot_be_meant_are_usage_errors(started, capsys, arguments, problem):
    """Exit code 2, and the flag is named."""
    assert main(arguments) == 2
    assert started == []
    captured = capsys.readouterr()
    assert problem in captured.err + captured.out


@pytest.mark.req("KR-001", "PL-751")
def test_a_kubeconfig_that_is_not_there_is_a_usage_error(capsys):
    assert main(["run", "placement-controller", "--kubeconfig", "/nonexistent/config"]) == 2
    assert "/nonexistent/config" in capsys.readouterr().err


@pytest.mark.req("PL-751")
@pytest.mark.parametrize(
    "failure",
    [
        ConnectionFailed("refused", host="api.example"),
        OSError("address already in use"),
        ExceptionGroup("tasks", [ExceptionGroup("inner", [OSError("address already in use")])]),
    ],
    ids=["no API server", "a port is taken", "a port is taken, seen by a task"],
)
def test_what_keeps_a_process_from_running_ends_it_with_three(monkeypatch, capsys, failure):
    async def run(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(process, "run", run)
    assert main(["run", "placement-controller"]) == 3
    assert "run placement-controller:" in capsys.readouterr().err


def test_a_bug_is_not_hidden(monkeypatch):
    """A failure that nobody foresaw keeps its traceback."""

    async def run(*_: Any) -> None:
        raise ExceptionGroup("tasks", [OSError("x"), RuntimeError("bug")])

    monkeypatch.setattr(process, "run", run)
    with pytest.raises(ExceptionGroup):
        main(["run", "placement-controller"])


def sources(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """What ``--print-settings`` printed: value and source, by flag."""
    _, *lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in lines]
    return {flag: (value, source) for flag, value, source in cells}


@pytest.mark.req("IN-030")
def test_every_flag_has_a_variable_and_the_command_line_wins(started, monkeypatch):
    for name, value in {
        "POLYARCH_PORT": "7",
        "POLYARCH_HEALTH_PORT": "8",
        "POLYARCH_NAMESPACE": "tools",
        "POLYARCH_LEADER_ELECT": "false",
        "POLYARCH_ALLOW_ADDRESS": "10.0.0.0/8 127.0.0.0/8",
        "POLYARCH_BIND": "",
        "POLYARCH_QUIET": "true",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["run", "placement-controller", "--health-port", "9"]) == 0
    ((_, _, settings),) = started
    own = settings.process
    assert (own.port, own.health_port, own.namespace, own.bind) == (7, 9, "tools", "")
    assert not own.leader_elect
    assert settings.registries.allow_addresses == ("10.0.0.0/8", "127.0.0.0/8")
    assert settings.log_level == "warning"


@pytest.mark.req("IN-030")
def test_the_settings_are_printed_with_where_they_came_from(started, monkeypatch, capsys):
    monkeypatch.setenv("POLYARCH_PORT", "7")
    monkeypatch.setenv("POLYARCH_CA", "a.pem b.pem")
    assert main(["run", "placement-controller", "--no-leader-elect", "-n", "tools", "--print-settings"]) == 0
    assert not started
    found = sources(capsys)
    assert found["--port"] == ("7", "POLYARCH_PORT")
    assert found["--ca"] == ("a.pem b.pem", "POLYARCH_CA")
    assert found["--leader-elect"] == ("false", "command line")
    assert found["--namespace"] == ("tools", "command line")
    assert found["--health-port"] == ("8081", "default")


@pytest.mark.req("IN-030")
@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        pytest.param("POLYARCH_PORT", "x", ["POLYARCH_PORT x: expected a number"], id="not a number"),
        pytest.param("POLYARCH_LEADER_ELECT", "x", ["POLYARCH_LEADER_ELECT", "bool"], id="neither true nor false"),
        pytest.param(
            "POLYARCH_LOG_FORMAT", "x", ["POLYARCH_LOG_FORMAT", '"json", "console"'], id="none of the choices"
        ),
        pytest.param("POLYARCH_LOG_FORMATT", "json", ["POLYARCH_LOG_FORMATT", "POLYARCH_LOG_FORMAT?"], id="misspelt"),
    ],
)
def test_a_wrong_variable_names_itself_and_what_is_allowed(started, monkeypatch, capsys, variable, value, problem):
    monkeypatch.setenv(variable, value)
    assert main(["run", "placement-controller"]) == 2
    assert not started
    said = capsys.readouterr().err
    assert all(part in said for part in problem), said


@pytest.mark.req("IN-030")
def test_variables_of_service_links_are_no_settings(started, monkeypatch):
    """Kubernetes puts these into the pods of a namespace that has a Service ``polyarch-operator``."""
    monkeypatch.setenv("POLYARCH_OPERATOR_PORT", "tcp://10.96.0.7:443")
    monkeypatch.setenv("POLYARCH_OPERATOR_SERVICE_HOST", "10.96.0.7")
    assert main(["run", "placement-controller"]) == 0
    assert len(started) == 1


@pytest.mark.parametrize(("word", "meant"), [("numa-exporterr", "numa-exporter"), ("taint", "taints")])
def test_a_misspelt_role_is_told_with_all_roles_also_those_that_are_commands_of_their_own(started, capsys, word, meant):
    assert main(["run", word]) == 2
    said = capsys.readouterr().err
    assert f"there is no role {word!r}; did you mean {meant}?" in said
    assert all(each.label in said for each in RoleChoice)
    assert "numa-exporter," in said
    assert started == []
