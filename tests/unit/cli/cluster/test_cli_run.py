"""``polyarch run``: what the flags mean, and what wrong ones get (PL-751)."""

from typing import Any

import pytest

from polyarch.cli import main
from polyarch.kube.errors import ConnectionFailed
from polyarch.run import all as everything
from polyarch.run import placement_controller, placement_webhook
from polyarch.run.settings import RunSettings


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, RunSettings]]:
    """What would have been run."""
    runs: list[tuple[str, RunSettings]] = []
    for module in (everything, placement_controller, placement_webhook):

        async def run(settings: RunSettings, name: str = module.__name__) -> None:
            runs.append((name.rpartition(".")[2], settings))

        monkeypatch.setattr(module, "run", run)
    return runs


def test_the_defaults_are_those_of_a_deployment(started):
    """PL-002, PL-530."""
    assert main(["run", "placement-controller"]) == 0
    ((name, settings),) = started
    assert name == "placement_controller"
    assert settings == RunSettings(namespace="polyarch-system")
    assert (settings.port, settings.metrics_port, settings.health_port) == (9443, 8443, 8081)
    assert settings.leader_elect


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
    ((name, settings),) = started
    assert name == "placement_webhook"
    assert settings == RunSettings(
        namespace="ns",
        kubeconfig="K",
        context="C",
        bind="",
        port=0,
        metrics_port=1,
        health_port=2,
        cert_dir="/certs",
        global_pull_secret=("a", "b"),
        registries_conf="R",
        ca=("x.pem", "y.pem"),
        allow_addresses=("127.0.0.0/8",),
        log_format="console",
        leader_elect=False,
    )


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
    providers = started[0][1].credential_providers
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

    async def run(settings: Any) -> None:
        raise failure

    monkeypatch.setattr(placement_controller, "run", run)
    assert main(["run", "placement-controller"]) == 3
    assert "run placement-controller:" in capsys.readouterr().err


def test_a_bug_is_not_hidden(monkeypatch):
    """A failure that nobody foresaw keeps its traceback."""

    async def run(settings: Any) -> None:
        raise ExceptionGroup("tasks", [OSError("x"), RuntimeError("bug")])

    monkeypatch.setattr(placement_controller, "run", run)
    with pytest.raises(ExceptionGroup):
        main(["run", "placement-controller"])
