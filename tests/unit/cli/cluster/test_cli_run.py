"""``polyarch run``: what the flags mean, and what wrong ones get (PL-751)."""

from typing import Any

import pytest

from polyarch.cli import main
from polyarch.cli.cluster.run import Choice
from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.process.roles import ProcessSettings, Role
from polyarch.run import process
from polyarch.run.logs import Verbosity
from polyarch.run.settings import RegistrySettings, RunSettings

Started = list[tuple[str, tuple[str, ...], RunSettings]]


@pytest.fixture
def started(monkeypatch) -> Started:
    """What would have been run."""
    runs: Started = []

    async def run(name: str, roles: tuple[Role, ...], settings: RunSettings) -> None:
        runs.append((name, tuple(role.name for role in roles), settings))

    monkeypatch.setattr(process, "run", run)
    return runs


def test_the_defaults_are_those_of_a_deployment(started):
    """PL-002, PL-530."""
    assert main(["run", "placement-controller"]) == 0
    ((name, roles, settings),) = started
    assert (name, roles) == ("placement-controller", ("placement-controller",))
    assert settings == RunSettings()
    own = settings.process
    assert (own.namespace, own.port, own.metrics_port, own.health_port) == ("polyarch-system", 9443, 8443, 8081)
    assert own.leader_elect


def test_every_flag_reaches_the_process(started, tmp_path):
    """PL-423, PL-424, RG-103."""
    arguments = [
        *("run", "placement-webhook", "--namespace", "ns", "--kubeconfig", "K", "--context", "C"),
        *("--cert-dir", "/certs", "--port", "0", "--metrics-port", "1", "--health-port", "2", "--bind="),
        *("--global-pull-secret-namespace", "a", "--global-pull-secret-name", "b", "--registries-conf", "R"),
        *("--ca", "x.pem", "--ca", "y.pem", "--allow-address", "127.0.0.0/8", "--no-leader-elect"),
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
        ),
    )


def test_all_is_every_role_of_the_cluster_in_one_process(started):
    """KR-050: a tuple of roles."""
    assert main(["run", "all", "--cert-dir", "/certs"]) == 0
    ((name, roles, _),) = started
    assert name == "all"
    assert {"placement-webhook", "placement-controller"} <= set(roles)


@pytest.mark.parametrize("choice", Choice, ids=lambda choice: choice.label)
def test_a_process_is_started_with_all_that_its_roles_read(choice):
    """KR-050: what a role asks its process for is there."""
    for role in choice.roles():
        assert set(role.settings) <= {RegistrySettings, Verbosity}, "what polyarch.run.process gives"
    if len(choice.value) == 1:
        assert [role.name for role in choice.roles()] == [choice.label]


def test_the_kubelets_credential_plugins(started, tmp_path):
    """PL-420, RG-086."""
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
    ],
)
def test_flags_that_cannot_be_meant_are_usage_errors(started, capsys, arguments, problem):
    """PL-751: exit code 2, and the flag is named."""
    assert main(arguments) == 2
    assert started == []
    captured = capsys.readouterr()
    assert problem in captured.err + captured.out


def test_a_kubeconfig_that_is_not_there_is_a_usage_error(capsys):
    """KR-001, PL-751."""
    assert main(["run", "placement-controller", "--kubeconfig", "/nonexistent/config"]) == 2
    assert "/nonexistent/config" in capsys.readouterr().err


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
    """PL-751."""

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
