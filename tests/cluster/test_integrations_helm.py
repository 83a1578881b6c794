"""The post-renderer with Helm itself: Helm 3 starts a program, Helm 4 a plugin, and a release is repaired."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from polyarch.kube.client import Client
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("MF-084")

ROOT = Path(__file__).parents[2]
RENDERER = ROOT / "deploy" / "helm-post-renderer"
CHART = Path(__file__).parent / "charts" / "shop"
PLATFORMS = """\
quay.io/acme/web:2: [linux/amd64, linux/arm64]
quay.io/acme/log:1: [linux/amd64, linux/arm64, linux/s390x]
"""
WANTED = [
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
]


class Helm(NamedTuple):
    """One Helm with a home of its own in which the post-renderer is installed as its documentation says."""

    program: str
    major: int
    environment: dict[str, str]
    platforms: str

    def __call__(self, *arguments: str) -> str:
        result = subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def rendered(self, *options: str) -> dict[str, Any]:
        """What ``helm template`` prints, by kind."""
        text = self("template", "rel", str(CHART), *options)
        return {each["kind"]: each for each in yaml.safe_load_all(text) if each}

    def renderer(self, *, known: bool = True) -> list[str]:
        """The options that make it run the post-renderer."""
        arguments = ["--offline", *(["--platforms-file", self.platforms] if known else [])]
        name = "polyarch-fix" if self.major >= 4 else str(RENDERER / "polyarch-fix")
        return ["--post-renderer", name, *(f"--post-renderer-args={each}" for each in arguments)]


@pytest.fixture(params=["helm-3", "helm-4"])
def helm(request: pytest.FixtureRequest, peer: Callable[[str], str], tmp_path: Path) -> Helm:
    program = peer(request.param)
    (tmp_path / "platforms.yaml").write_text(PLATFORMS)
    environment = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    version = subprocess.run(
        [program, "version", "--template", "{{.Version}}"], capture_output=True, text=True, check=True, env=environment
    ).stdout
    helm = Helm(program, int(version.lstrip("v").split(".")[0]), environment, str(tmp_path / "platforms.yaml"))
    if helm.major >= 4:
        helm("plugin", "install", str(RENDERER))
    return helm


def terms(workload: Any) -> Any:
    affinity = workload["spec"]["template"]["spec"].get("affinity")
    if affinity is None:
        return None
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [each["matchExpressions"] for each in required["nodeSelectorTerms"]]


def test_a_chart_is_repaired_and_nothing_else_of_it_changes(helm: Helm) -> None:
    plain, repaired = helm.rendered(), helm.rendered(*helm.renderer())
    assert terms(plain["Deployment"]) is None
    assert terms(repaired["Deployment"]) == [WANTED]
    assert {kind: repaired[kind] for kind in ("ConfigMap", "Service")} == {
        kind: plain[kind] for kind in ("ConfigMap", "Service")
    }
    del repaired["Deployment"]["spec"]["template"]["spec"]["affinity"]
    assert repaired["Deployment"] == plain["Deployment"]


def test_hooks_are_repaired_by_helm_4_alone(helm: Helm) -> None:
    """Helm 3 does not hand hooks to a post-renderer."""
    assert terms(helm.rendered(*helm.renderer())["Job"]) == ([WANTED] if helm.major >= 4 else None)


def test_an_image_that_nobody_knows_keeps_nothing_from_being_installed(helm: Helm) -> None:
    assert helm.rendered(*helm.renderer(known=False)) == helm.rendered()


async def test_a_release_is_installed_repaired(helm: Helm, sandbox: Sandbox, client: Client, namespace: str) -> None:
    where = ["--kubeconfig", str(sandbox.kubeconfig), "--namespace", namespace]
    chart = ["rel", str(CHART), "--no-hooks", *where, *helm.renderer()]
    tried = helm("install", *chart, "--dry-run=client")
    assert "kubernetes.io/arch" in tried.partition("MANIFEST:")[2]
    helm("install", *chart)
    assert terms(await client.get(DEPLOYMENTS, "rel-web", namespace=namespace)) == [WANTED]
    helm("upgrade", *chart, "--set", "replicas=1")
    upgraded = await client.get(DEPLOYMENTS, "rel-web", namespace=namespace)
    assert (upgraded["spec"]["replicas"], terms(upgraded)) == (1, [WANTED])
    helm("uninstall", "rel", *where)
