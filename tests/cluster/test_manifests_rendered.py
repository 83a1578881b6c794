"""What ``fix --write`` changes of what kubectl kustomize and Helm render, and of what an API server makes of it.

Every file of a folder is fixed in place. Then each rendering differs at the listed places and at no other, and so does
what ``kubectl apply --dry-run`` makes of it, on the client and on the server.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tools.random_manifests import leaves

from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("MF-014", "MF-054")

PLATFORMS = """\
quay.io/acme/web:2: [linux/amd64, linux/arm64]
quay.io/acme/log:1: [linux/amd64, linux/arm64, linux/s390x]
quay.io/acme/old:1: [linux/amd64]
"""


def deployment(name: str, image: str, spec: str = "") -> str:
    """A Deployment that an API server takes; ``spec`` are lines of its pod specification."""
    lines = "".join(f"      {line}\n" for line in spec.splitlines())
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  labels: &labels\n    app: {name}\nspec:\n"
        "  selector:\n    matchLabels: *labels\n  template:\n    metadata:\n      labels: *labels\n    spec:\n"
        f"{lines}      containers:\n      - name: main\n        image: {image} # pinned elsewhere\n"
    )


def terms(*architectures: str) -> str:
    """Required node affinity in flow style."""
    values = ", ".join(architectures)
    return (
        "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n"
        f"      - matchExpressions:\n        - {{key: kubernetes.io/arch, operator: In, values: [{values}]}}\n"
        "        - {key: kubernetes.io/os, operator: In, values: [linux]}\n"
    )


POD = "/spec/template/spec"
REQUIRED = f"{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  template:\n    spec:\n{}"


class Folder(NamedTuple):
    """Files, and for each rendering where its objects change."""

    files: Mapping[str, str]
    renderings: Mapping[str, Mapping[str, str]]
    """Folder → name of the object → pointer."""


KUSTOMIZATIONS: Mapping[str, Folder] = {
    "a base whose image the overlay replaces": Folder(
        {
            "base/kustomization.yaml": (
                "resources: [web.yaml]\nimages: [{name: web, newName: quay.io/acme/web, newTag: '2'}]\n"
            ),
            "base/web.yaml": deployment("web", "web"),
            "overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: shop-\nnamespace: default\n",
        },
        {"base": {"web": f"{POD}/affinity"}, "overlay": {"shop-web": f"{POD}/affinity"}},
    ),
    "a strategic patch that replaces what the base requires": Folder(
        {
            "base/kustomization.yaml": "resources: [web.yaml]\n",
            "base/web.yaml": deployment("web", "quay.io/acme/old:1", terms("amd64", "arm64")),
            "overlay/kustomization.yaml": "resources: [../base]\npatches: [{path: patch.yaml}]\n",
            "overlay/patch.yaml": PATCH.format("".join(f"      {line}\n" for line in terms("amd64").splitlines())),
        },
        {"base": {"web": f"{REQUIRED}/0/matchExpressions/0/values"}, "overlay": {}},
    ),
    "a strategic patch of something else": Folder(
        {
            "base/kustomization.yaml": "resources: [web.yaml, log.yaml]\n",
            "base/web.yaml": deployment("web", "quay.io/acme/web:2"),
            "base/log.yaml": deployment("log", "quay.io/acme/log:1", terms("amd64", "arm64", "s390x")),
            "overlay/kustomization.yaml": "resources: [../base]\npatches: [{path: patch.yaml}]\n",
            "overlay/patch.yaml": PATCH.format("      containers: [{name: main, args: [--arch, amd64]}]\n"),
        },
        {"base": {"web": f"{POD}/affinity"}, "overlay": {"web": f"{POD}/affinity"}},
    ),
    "a JSON 6902 patch": Folder(
        {
            "base/kustomization.yaml": "resources: [web.yaml]\n",
            "base/web.yaml": deployment("web", "quay.io/acme/old:1", terms("amd64", "arm64", "s390x")),
            "overlay/kustomization.yaml": (
                "resources: [../base]\npatches:\n- path: patch.json\n  target: {kind: Deployment, name: web}\n"
            ),
            "overlay/patch.json": json.dumps(
                [{"op": "add", "path": f"{REQUIRED}/0/matchExpressions/0/values/-", "value": "riscv64"}]
            ),
        },
        {
            "base": {"web": f"{REQUIRED}/0/matchExpressions/0/values"},
            "overlay": {"web": f"{REQUIRED}/0/matchExpressions/0/values"},
        },
    ),
    "a component and a generator": Folder(
        {
            "kustomization.yaml": (
                "resources: [all.yaml]\ncomponents: [logs]\nconfigMapGenerator: [{name: c, files: [values.yaml]}]\n"
            ),
            "all.yaml": "---\n"
            + deployment("web", "quay.io/acme/web:2")
            + "---\n"
            + deployment("b", "quay.io/acme/old:1"),
            "values.yaml": "image: {repository: quay.io/acme/old, tag: '1'}\nnodeSelector: {}\naffinity: {}\n",
            "logs/kustomization.yaml": (
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- path: logs.yaml\n"
                "  target: {kind: Deployment}\n"
            ),
            "logs/logs.yaml": (
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: any}\nspec: {template: {spec: {containers: "
                "[{name: log, image: 'quay.io/acme/log:1'}]}}}\n"
            ),
        },
        {".": {"web": f"{POD}/affinity", "b": f"{POD}/affinity"}},
    ),
}


def polyarch(folder: Path) -> None:
    words = [sys.executable, "-m", "polyarch", "fix", "--write", ".", "--offline", "--platforms-file", "../p.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr


def written(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / "p.yaml").write_text(PLATFORMS)
    for name, text in files.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "files"


class Renderer(NamedTuple):
    """kubectl, and a cluster that looks at what was rendered."""

    kubectl: str
    kubeconfig: str
    home: Path

    def run(self, *command: str, text: str = "", folder: Path | None = None) -> str:
        environment = {**os.environ, "HOME": str(self.home)}
        done = subprocess.run(
            command, cwd=folder, input=text, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def meanings(self, text: str) -> list[dict[str, Any]]:
        """The objects of a text by name: as they stand, and as client and server of an ``apply`` see them."""
        found = [{each["metadata"]["name"]: each for each in yaml.safe_load_all(text) if each}]
        for way in ("client", "server"):
            options = ("apply", f"--dry-run={way}", "-o", "json", "-f", "-", "--kubeconfig", self.kubeconfig)
            answer = json.loads(self.run(self.kubectl, *options, text=text))
            objects = answer["items"] if answer["kind"] == "List" else [answer]
            found.append({each["metadata"]["name"]: {"spec": each.get("spec")} for each in objects})
        return found


@pytest.fixture
def renderer(sandbox: Sandbox, peer: Callable[[str], str], tmp_path: Path) -> Renderer:
    return Renderer(peer("kubectl"), str(sandbox.kubeconfig), tmp_path / "home")


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]], expected: Mapping[str, str]) -> None:
    for old, new in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        changed = {name: leaves(old[name], new[name]) for name in old}
        assert {name: places for name, places in changed.items() if places} == {
            name: [place] for name, place in expected.items()
        }


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_a_fixed_kustomization_builds_the_same_but_for_what_was_fixed(
    name: str, renderer: Renderer, tmp_path: Path
) -> None:
    files, renderings = KUSTOMIZATIONS[name]
    folder = written(tmp_path, files)

    def built() -> dict[str, list[dict[str, Any]]]:
        texts = {place: renderer.run(renderer.kubectl, "kustomize", place, folder=folder) for place in renderings}
        return {place: renderer.meanings(text) for place, text in texts.items()}

    before = built()
    polyarch(folder)
    after = built()
    for place, expected in renderings.items():
        compare(before[place], after[place], expected)
    assert {each for each in files if (folder / each).read_text() != files[each]} <= {
        each for each in files if each.endswith(("web.yaml", "all.yaml"))
    }


CHART = {
    "Chart.yaml": "apiVersion: v2\nname: shop\nversion: 0.1.0\n",
    "values.yaml": "image: quay.io/acme/web:2\nreplicas: 2\nnodeSelector: {kubernetes.io/arch: s390x}\n",
    "templates/plain.yaml": deployment("plain", "quay.io/acme/old:1", terms("amd64", "arm64")),
    "templates/marked.yaml": (
        deployment("marked", "{{ .Values.image }}").replace("spec:\n", "spec:\n  replicas: {{ .Values.replicas }}\n", 1)
    ),
    "templates/quoted.yaml": deployment("quoted", "quay.io/acme/web:2").replace(
        "  labels:", "  annotations: {note: '{{ .Release.Name }}'}\n  labels:", 1
    ),
    "templates/commented.yaml": (
        "{{- /* amd64 only: see values.yaml */ -}}\n" + deployment("commented", "quay.io/acme/old:1")
    ),
    "crds/empty.yaml": "",
}
CHANGED = {
    "plain": f"{REQUIRED}/0/matchExpressions/0/values",
    "quoted": f"{POD}/affinity",
}


@pytest.mark.parametrize("program", ["helm-3", "helm-4"])
def test_a_fixed_chart_renders_the_same_but_for_what_was_fixed(
    program: str, peer: Callable[[str], str], renderer: Renderer, tmp_path: Path
) -> None:
    """A file with marks that YAML cannot read is left as it is."""
    folder = written(tmp_path, CHART)

    def rendered() -> list[dict[str, Any]]:
        return renderer.meanings(renderer.run(peer(program), "template", "shop", ".", folder=folder))

    before = rendered()
    assert len(before[0]) == 4
    polyarch(folder)
    compare(before, rendered(), CHANGED)
    for name in ("values.yaml", "templates/marked.yaml", "templates/commented.yaml"):
        assert (folder / name).read_text() == CHART[name]
