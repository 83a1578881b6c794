"""Compat mode and the external-validator hook against the library of operator-sdk itself.

The program is ``tools/peers/gomodule/multiarch-validator``. Its container tool is a script here that answers from
files, so both judge the same bundles with the same answers and nothing is pulled.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bundling
import pytest
import yaml

from polyarch.cli.bundle_validation import judge_compat
from polyarch.cli.input.objects import load_platforms_file
from polyarch.cli.options.images import ImageOptions
from polyarch.manifests import operator_sdk

pytestmark = pytest.mark.req("MF-076", "MF-077", "MF-078")

UNIT = Path(__file__).parents[1] / "unit" / "manifests"
RECORDED = yaml.safe_load((UNIT / "multiarch-validator.yaml").read_text())
SEED = 20
BUNDLES = 40
IMAGES = [f"quay.io/acme/{name}:1" for name in ("manager", "proxy", "operand", "extra")]
ARCHITECTURES = ["amd64", "arm64", "arm", "s390x"]
SYSTEMS = ["linux", "windows"]
SINGLE = {"platforms": ["linux/amd64"], "kind": "image"}
CAUSE = re.compile(r"(unable to inspect the image \([^)]*\) :).*", re.DOTALL)

CONTAINER_TOOL = """\
#!/bin/sh
# TOOL pull IMAGE, TOOL manifest inspect IMAGE
for image; do :; done
file=$ANSWERS/$(echo "$image" | tr /:@ ___)
[ -f "$file" ] || { echo "$image: manifest unknown" >&2; exit 125; }
[ "$1" = pull ] || cat "$file"
"""


class Said(NamedTuple):
    """What a validator answered, without the order of its walks and the causes of failed inspections."""

    code: int
    lines: list[str]

    @classmethod
    def of(cls, code: int, lines: list[str]) -> "Said":
        return cls(code, sorted(CAUSE.sub(r"\1", line) for line in lines))


class Bench(NamedTuple):
    """A folder with a bundle, answers and container tools, and the validator."""

    folder: Path
    program: str

    def put(self, document: Mapping[str, Any], images: Mapping[str, Any]) -> None:
        manifests = self.folder / "bundle" / "manifests"
        shutil.rmtree(manifests, ignore_errors=True)
        manifests.mkdir(parents=True)
        (manifests / "acme.clusterserviceversion.yaml").write_text(yaml.safe_dump(dict(document)))
        shutil.rmtree(self.folder / "answers", ignore_errors=True)
        (self.folder / "answers").mkdir()
        for image, answer in images.items():
            if printed := inspected(answer):
                (self.folder / "answers" / re.sub("[/:@]", "_", image)).write_text(json.dumps(printed))
        (self.folder / "platforms.json").write_text(json.dumps(dict(images)))

    def real(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'tools'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [self.program, *arguments],
            env={**os.environ, "PATH": path, "ANSWERS": str(self.folder / "answers"), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def theirs(self, tool: str) -> Said:
        result = self.real("validate", str(self.folder / "bundle" / "manifests"), tool)
        assert result.returncode in (0, 1), result.stderr
        return Said.of(result.returncode, messages(result.stdout))

    def ours(self, tool: str) -> Said:
        file = load_platforms_file(str(self.folder / "platforms.json"))
        outputs, name = judge_compat(str(self.folder / "bundle"), ImageOptions(offline=True), tool, file=file)
        return Said.of(0 if operator_sdk.passed(outputs) else 1, [operator_sdk.line(each, name) for each in outputs])

    def hooked(self, mode: str) -> subprocess.CompletedProcess[str]:
        return self.real(
            "external",
            "polyarch-olm-validator",
            str(self.folder / "bundle"),
            POLYARCH_OLM_MODE=mode,
            POLYARCH_OFFLINE="true",
            POLYARCH_PLATFORMS_FILE=str(self.folder / "platforms.json"),
        )


def messages(printed: str) -> list[str]:
    return [each["message"] for each in json.loads(printed)["outputs"] or ()]


def inspected(answer: Any) -> dict[str, Any]:
    """What ``manifest inspect`` prints: an index with an attestation, one image, or nothing for what is gone."""
    if answer == SINGLE:
        return {"schemaVersion": 2, "config": {}, "layers": []}
    if not isinstance(answer, list):
        return {}
    pairs = [each.split("/")[:2] for each in answer] + [["unknown", "unknown"]]
    return {"manifests": [{"platform": {"os": os_name, "architecture": each}} for os_name, each in pairs]}


@pytest.fixture
def bench(tmp_path: Path, peer: Callable[[str], str]) -> Bench:
    (tmp_path / "tools").mkdir()
    for name in ("docker", "podman"):
        (tmp_path / "tools" / name).write_text(CONTAINER_TOOL)
        (tmp_path / "tools" / name).chmod(0o755)
    return Bench(tmp_path, peer("multiarch-validator"))


def test_the_script_for_the_container_tool_answers_as_one_does(bench: Bench) -> None:
    """It is what the comparison rests on."""
    bench.put({}, {IMAGES[0]: ["linux/amd64"], IMAGES[1]: {"error": "not-found"}})

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [bench.folder / "tools" / "podman", *arguments],
            env={**os.environ, "ANSWERS": str(bench.folder / "answers")},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("pull", IMAGES[0]).returncode == 0
    shown = json.loads(run("manifest", "inspect", IMAGES[0]).stdout)
    assert [each["platform"]["os"] for each in shown["manifests"]] == ["linux", "unknown"]
    assert run("pull", IMAGES[1]).returncode == 125


@pytest.mark.parametrize("case", [pytest.param(each, id=each["case"]) for each in RECORDED])
def test_what_is_recorded_is_what_it_says(case: Any, bench: Bench) -> None:
    document = bundling.csv(*case["pods"], labels=case["labels"], related=case["related"])
    bench.put(document, case["images"])
    assert bench.theirs(case["tool"]) == Said(case["exit"], sorted(case["said"])) == bench.ours(case["tool"])


def test_random_bundles_are_judged_alike(bench: Bench) -> None:
    chance = random.Random(SEED)
    for number in range(BUNDLES):
        document, images = drawn(chance)
        bench.put(document, images)
        tool = chance.choice(["", "podman", "docker", "none"])
        assert bench.ours(tool) == bench.theirs(tool), f"bundle {number}: {json.dumps(document)} {images}"


def drawn(chance: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A bundle with everything that the validator looks at, and what is known of its images."""

    def some(values: list[str], least: int) -> list[str]:
        return chance.sample(values, chance.randint(least, len(values)))

    def affinity() -> dict[str, Any]:
        terms = [{"os": some(SYSTEMS, 0), "arch": some(ARCHITECTURES, 0)} for _ in range(chance.randint(0, 2))]
        return {"affinity": bundling.in_terms(*terms)} if chance.random() < 0.5 else {}

    def answer() -> Any:
        platforms = dict.fromkeys(
            f"{chance.choice(SYSTEMS)}/{chance.choice(ARCHITECTURES)}" for _ in range(chance.randint(1, 4))
        )
        return chance.choice([{"error": "not-found"}, SINGLE, *[list(platforms)] * 5])

    names = ["manager", "kube-rbac-proxy", "a", "b"]
    pods = [
        {
            "containers": [
                bundling.container(chance.choice(names), chance.choice(IMAGES)) for _ in range(chance.randint(0, 3))
            ],
            **affinity(),
        }
        for _ in range(chance.randint(1, 3))
    ]
    keys = [*(bundling.ARCH + each for each in ARCHITECTURES), *(bundling.OS + each for each in SYSTEMS)]
    labels = {chance.choice(["", "", "x."]) + key: chance.choice(["supported"] * 4 + ["no"]) for key in some(keys, 0)}
    related = {f"r{number}": chance.choice(IMAGES) for number in range(chance.randint(0, 2))}
    return bundling.csv(*pods, labels=labels, related=related), {image: answer() for image in IMAGES}


@pytest.mark.parametrize(
    "change",
    [
        lambda csv: csv["metadata"].update(labels=["a"]),
        lambda csv: csv["metadata"].update(labels={"a": ["b"]}),
        lambda csv: csv.update(spec="x"),
        lambda csv: csv["spec"]["install"]["spec"].update(deployments={}),
        lambda csv: csv["spec"].update(relatedImages={}),
        lambda csv: csv["spec"].update(relatedImages=["x"]),
        lambda csv: csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"].update(containers={}),
    ],
)
def test_what_cannot_be_decoded_passes_neither(change: Callable[[Any], None], bench: Bench) -> None:
    document = bundling.csv()
    bench.put(document, {bundling.MANAGER: ["linux/amd64"]})
    assert (bench.theirs("").code, bench.ours("").code) == (0, 0)
    change(document)
    bench.put(document, {bundling.MANAGER: ["linux/amd64"]})
    result = bench.real("validate", str(bench.folder / "bundle" / "manifests"), "")
    assert "cannot unmarshal" in result.stderr
    assert bench.ours("").code == 1


@pytest.mark.req("MF-079")
@pytest.mark.parametrize("case", [pytest.param(each, id=each["case"]) for each in RECORDED if not each["tool"]])
def test_the_hook_in_compat_mode_is_the_validator(case: Any, bench: Bench) -> None:
    """Decoded strictly into the library's own type."""
    bench.put(bundling.csv(*case["pods"], labels=case["labels"], related=case["related"]), case["images"])
    result = bench.hooked("compat")
    assert Said.of(result.returncode, messages(result.stdout)) == Said(case["exit"], sorted(case["said"]))


@pytest.mark.req("MF-079")
def test_the_hook_in_native_mode_shows_findings_with_their_place(bench: Bench) -> None:
    document = bundling.csv(labels=bundling.labels("amd64", "s390x"))
    bench.put(document, {bundling.MANAGER: ["linux/amd64", "linux/arm64"]})
    result = bench.hooked("native")
    assert (result.returncode, result.stderr) == (1, "")
    (message,) = [each for each in messages(result.stdout) if "MA201" in each]
    assert message == (
        "Error: Field /metadata/labels/operatorframework.io~1arch.s390x, Value acme.v1: MA201: ClusterServiceVersion "
        "acme.v1 has the label operatorframework.io/arch.s390x and promises s390x, but quay.io/acme/manager:1 has only "
        "linux/amd64, linux/arm64"
    )


@pytest.mark.req("MF-079")
def test_the_hook_that_cannot_run_is_told_from_a_bundle_that_is_bad(bench: Bench) -> None:
    """Operator-sdk stops at another exit code than 0; a directory that is no bundle is a result."""
    bench.put({"kind": "Service"}, {})
    assert bench.hooked("native").returncode == 1
    shutil.rmtree(bench.folder / "bundle")
    result = bench.hooked("native")
    assert result.returncode == 3
    assert "no such directory" in result.stderr
