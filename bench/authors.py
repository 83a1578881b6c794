"""What the authoring tools cost: MF-090 and MF-015, whole processes, start-up included.

1 000 manifests of 3 KiB with three containers each, their images answered by a file. kube-score, if it is on PATH,
reads the same files in the same minute.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure

Say = Callable[[str], None]
FILES = 1000
PLATFORMS = ("[linux/amd64, linux/arm64]", "[linux/amd64]", "[linux/amd64, linux/arm64, linux/s390x]")


def _manifest(number: int) -> str:
    variables = "".join(f"        - name: SETTING_{index}\n          value: value-of-{index}\n" for index in range(14))
    containers = "".join(
        f"      - name: part{part}\n        image: quay.io/team{number % 50}/app{part}:1.{number % 7}\n"
        f"        args: [--listen, ':80{part}0']\n        env:\n{variables}"
        f"        resources:\n          requests: {{cpu: 100m, memory: 128Mi}}\n"
        for part in range(3)
    )
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-{number}\n  namespace: team{number % 50}\n"
        f"  labels:\n    app.kubernetes.io/name: app-{number}\nspec:\n  replicas: 2\n  selector:\n    matchLabels:\n"
        f"      app: app-{number}\n  template:\n    metadata:\n      labels:\n        app: app-{number}\n    spec:\n"
        f"      containers:\n{containers}"
    )


def _timed(command: list[str], *, folder: Path) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[:4]} ended with {done.returncode}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _least(command: list[str], *, folder: Path, rounds: int = 3) -> tuple[float, float]:
    """(wall, CPU) of the round that took the least CPU: interruptions only ever add to it."""
    return min((_timed(command, folder=folder) for _ in range(rounds)), key=lambda figures: figures[1])


def authors(say: Say) -> list[Figure]:
    """Lint of 1 000 manifests, of a large resource definition, and the start of the command."""
    polyarch = [sys.executable, "-m", "polyarch"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifests = folder / "manifests"
        manifests.mkdir()
        sizes = []
        for number in range(FILES):
            path = manifests / f"app-{number}.yaml"
            path.write_text(_manifest(number))
            sizes.append(path.stat().st_size)
        answers = {
            f"quay.io/team{team}/app{part}:1.{minor}": PLATFORMS[part]
            for team in range(50)
            for part in range(3)
            for minor in range(7)
        }
        (folder / "platforms.yaml").write_text("".join(f"{image}: {known}\n" for image, known in answers.items()))
        lint = [*polyarch, "lint", "manifests", "--platforms-file", "platforms.yaml", "--offline", "-o", "json"]
        wall, cpu = _least([*lint, "--jobs", "1"], folder=folder)
        definition = "description: a field of a resource\n" * 150_000
        head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec:\n"
        (folder / "crd.yaml").write_text(head + "".join(f"  {line}\n" for line in definition.splitlines()))
        _, start = _least([*polyarch, "lint", "--help"], folder=folder, rounds=5)
        small = folder / "small.yaml"
        small.write_text("kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n")
        _, without = _least([*polyarch, "lint", "small.yaml", "--offline"], folder=folder, rounds=5)
        _, with_definition = _least([*polyarch, "lint", "crd.yaml", "--offline"], folder=folder, rounds=5)
        figures = [
            Figure(f"1 000 manifests of {sum(sizes) / FILES / 1024:.1f} KiB linted", cpu, "s CPU", "MF-090", 2.0,
                   compared=True),
            Figure("1 000 manifests linted, wall, one process", wall, "s"),
            Figure("polyarch lint --help", start, "s CPU", "MF-090", 0.2, compared=True),
            Figure("a 5 MB resource definition, besides start-up", 1000 * max(0.0, with_definition - without), "ms CPU",
                   "MF-015", 20),
        ]  # fmt: skip
        if shutil.which("kube-score") is None:
            say("kube-score is not on PATH (go install github.com/zegl/kube-score/cmd/kube-score@latest): left out")
            return figures
        files = [f"manifests/{path.name}" for path in sorted(manifests.iterdir())]
        wall_two, _ = _least(lint, folder=folder)
        score_wall, score_cpu = _least(["kube-score", "score", *files], folder=folder)
        return [
            *figures,
            Figure("wall of kube-score's, all processors", 100 * wall_two / score_wall, "%", "MF-090", 100,
                   note=f"kube-score {score_wall:.1f} s wall, {score_cpu:.1f} s CPU, {os.cpu_count()} processors"),
        ]  # fmt: skip


SCENARIOS = {"authors": authors}
