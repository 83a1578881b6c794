"""The kustomize component of ``polyarch fix`` with kustomize itself, which is part of kubectl."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from linting import deployment, required
from reporting import WEB

pytestmark = pytest.mark.req("MF-070")

CASES: Mapping[str, str] = {
    "no affinity": deployment(""),
    "null affinity": deployment("affinity: null"),
    "other affinity": deployment("affinity:\n  podAntiAffinity: {}"),
    "terms": deployment(required("arch In amd64,s390x", "zone Exists; arch In s390x,arm64")),
    "mixed terms": deployment(required("arch In amd64,s390x", "zone Exists")),
    "another name": deployment(required("arch In x86_64,arm64")),
    "deprecated keys": deployment(required("beta.kubernetes.io/arch In amd64,s390x")),
    "node selector": deployment("nodeSelector:\n  kubernetes.io/arch: amd64"),
    "nothing in common": deployment(required("arch In s390x")),
    "with a namespace and dots": WEB.replace("name: web\n  name", "name: web.v1\n  name"),
    "two objects": WEB + "---\n" + WEB.replace("kind: Deployment", "kind: StatefulSet"),
}


@pytest.mark.parametrize("name", CASES)
def test_kustomize_builds_what_the_repair_in_place_makes(name: str, peer: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "platforms.yaml").write_text("quay.io/acme/web:2: [linux/amd64, linux/arm64]\n")
    (tmp_path / "web.yaml").write_text(CASES[name])

    def run(*command: str) -> str:
        environment = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def repaired(form: str) -> str:
        known = ("--offline", "--platforms-file", "platforms.yaml")
        return run(
            *(sys.executable, "-m", "polyarch", "fix", "--emit", form, "--widen", "--replace", *known, "web.yaml")
        )

    (tmp_path / "polyarch").mkdir()
    (tmp_path / "polyarch" / "kustomization.yaml").write_text(repaired("kustomize"))
    (tmp_path / "kustomization.yaml").write_text("resources: [web.yaml]\ncomponents: [polyarch]\n")
    built = list(yaml.safe_load_all(run(peer("kubectl"), "kustomize", ".")))
    expected = list(yaml.safe_load_all(repaired("yaml")))
    assert sorted(built, key=str) == sorted(expected, key=str)
    assert sorted(built, key=str) != sorted(yaml.safe_load_all(CASES[name]), key=str)
