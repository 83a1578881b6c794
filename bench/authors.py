"""Cost of the authoring tools (MF-090, MF-015).

Inputs: 1 000 manifests of 3 KiB with three containers each, with images answered by a file; a tree of 10 000 files as
charts write them; one file of 115 KiB with many documents. Whole processes are measured, start-up included, with
compiled bytecode as in an installation. What takes milliseconds is measured within one process, because start-up times
vary by more than that. kube-score, if it is on PATH, reads the same files in the same minute.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Figure, resident_mib
from polyarch.cli.garbage_collection import collecting_rarely
from polyarch.cli.input.files import read_file
from polyarch.cli.lint.lint import LintRun, is_judged
from polyarch.cli.lint.settings import settle
from polyarch.cli.options.images import ImageOptions, RuleOptions

Say = Callable[[str], None]
FILES = 1000
TREE = 10_000
DOCUMENTS = 38
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


_SMALL = (
    "kind: Service\nspec:\n  selector: {app: a}\n  ports:\n  - {port: 80, targetPort: http}\n",
    "kind: ServiceAccount\nautomountServiceAccountToken: false\n",
    "kind: Role\nrules:\n- apiGroups: ['']\n  resources: [pods, images]\n  verbs: [get, list, watch]\n",
    "kind: RoleBinding\nroleRef: {kind: Role, name: a}\nsubjects:\n- {kind: ServiceAccount, name: a}\n",
    "kind: ConfigMap\ndata:\n  settings.yaml: |\n" + "    a-setting: of this chart\n" * 20,
    "kind: Secret\nstringData: {password: generated}\n",
)


def _chart_file(number: int) -> str:
    """A file as ``helm template --output-dir`` writes it; one of seven has pods."""
    source = f"---\n# Source: chart{number // 7}/templates/part{number % 7}.yaml\n"
    if number % 7 == 0:
        return source + _manifest(number)
    return f"{source}apiVersion: v1\nmetadata: {{name: a{number}, namespace: team}}\n{_SMALL[number % 7 - 1]}"


@dataclass(frozen=True)
class _Cost:
    """Of one process: seconds of wall and CPU time."""

    wall: float
    cpu: float


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _run(command: list[str], folder: Path) -> _Cost:
    begin = time.perf_counter()
    process = _start(command, folder)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    return _Cost(wall, usage.ru_utime + usage.ru_stime)


def _most_memory(command: list[str], folder: Path) -> float:
    """Peak memory in MiB, sampled: rusage of an ended child includes the process that it was forked from."""
    process, most = _start(command, folder), 0.0
    while process.poll() is None:
        most = max(most, resident_mib(process.pid))
        time.sleep(0.02)
    return most


def _least(command: list[str], folder: Path, *, rounds: int = 3) -> _Cost:
    """The round with the least CPU time: interruptions only add to it."""
    return min((_run(command, folder) for _ in range(rounds)), key=lambda cost: cost.cpu)


def _milliseconds(work: Callable[[], object], *, rounds: int = 15) -> float:
    """CPU time in milliseconds of the fastest round, within this process."""
    taken = []
    with collecting_rarely():
        for _ in range(rounds):
            begin = time.process_time()
            work()
            taken.append(time.process_time() - begin)
    return 1000 * min(taken)


def authors(say: Say) -> list[Figure]:
    """Lint of small, large and many files, and the start of the command."""
    polyarch = [sys.executable, "-m", "polyarch"]
    offline = ["--platforms-file", "platforms.yaml", "--offline", "-o", "json"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = _write(folder)
        lint = [*polyarch, "lint", "manifests", *offline]
        _run(lint, folder)  # writes the bytecode
        start = _least([*polyarch, "lint", "--help"], folder, rounds=10)
        longest, report = (_least([*polyarch, name, "--help"], folder, rounds=5) for name in ("run", "report"))
        manifests = _least([*lint, "--jobs", "1"], folder, rounds=5)
        say("1 000 manifests are linted")
        over_tree = [*polyarch, "lint", "tree", *offline, "--jobs", "1"]
        tree = _least(over_tree, folder, rounds=2)
        memory = _most_memory(over_tree, folder)
        say(f"{TREE} files of charts are linted")
        definition = str(folder / "crd.yaml")
        images = ImageOptions(platforms_file=str(folder / "platforms.yaml"), offline=True)
        run = LintRun.over([str(folder / "many.yaml")], settle(RuleOptions(), images), images)
        figures = [
            Figure(f"1 000 manifests of {size / 1024:.1f} KiB linted", manifests.cpu, "s CPU", "MF-090", 2.0,
                   compared=True),
            Figure("1 000 manifests linted, wall, one process", manifests.wall, "s"),
            Figure("polyarch lint --help", start.cpu, "s CPU", "MF-090", 0.2, compared=True),
            Figure("polyarch run --help, the longest", longest.cpu, "s CPU", "RP-040", 0.25),
            Figure("polyarch report --help", report.cpu, "s CPU", "RP-040", 0.25),
            Figure("files of charts linted, one process", TREE / tree.wall, "files/s", "MF-090", 500, at_most=False),
            Figure(f"{TREE} files linted, memory", memory, "MiB", "MF-090", 150, compared=True),
            Figure(f"a file of {DOCUMENTS} documents, {(folder / 'many.yaml').stat().st_size / 1024:.0f} KiB",
                   _milliseconds(lambda: run.examine(run.files[0])), "ms CPU", "MF-090", 60, compared=True),
            Figure("a 5 MB resource definition",
                   _milliseconds(lambda: is_judged(definition, read_file(definition))), "ms CPU", "MF-015", 20),
        ]  # fmt: skip
        if shutil.which("kube-score") is None:
            say("kube-score is not on PATH (go install github.com/zegl/kube-score/cmd/kube-score@latest): left out")
            return figures
        files = [f"manifests/{path.name}" for path in sorted((folder / "manifests").iterdir())]
        both = [(_run(lint, folder), _run(["kube-score", "score", *files], folder)) for _ in range(5)]
        ours, theirs = (min(costs, key=lambda cost: cost.wall) for costs in zip(*both, strict=True))
        return [
            *figures,
            Figure("wall of kube-score's, all processors", 100 * ours.wall / theirs.wall, "%", "MF-090", 100,
                   note=f"kube-score {theirs.wall:.1f} s wall, {theirs.cpu:.1f} s CPU, {os.cpu_count()} processors"),
        ]  # fmt: skip


def _write(folder: Path) -> float:
    """Write all input files; return the mean size of the manifests in bytes."""
    for name, files, text in (("manifests", FILES, _manifest), ("tree", TREE, _chart_file)):
        (folder / name).mkdir()
        for number in range(files):
            (folder / name / f"{number:05}.yaml").write_text(text(number))
    (folder / "many.yaml").write_text("---\n".join(_manifest(number) for number in range(DOCUMENTS)))
    answers = {
        f"quay.io/team{team}/app{part}:1.{minor}": PLATFORMS[part]
        for team in range(50)
        for part in range(3)
        for minor in range(7)
    }
    (folder / "platforms.yaml").write_text("".join(f"{image}: {known}\n" for image, known in answers.items()))
    definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec:\n"
    (folder / "crd.yaml").write_text(definition + "  description: a field of a resource\n" * 135_000)
    return sum(path.stat().st_size for path in (folder / "manifests").iterdir()) / FILES


SCENARIOS = {"authors": authors}
