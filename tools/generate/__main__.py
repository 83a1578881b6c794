"""``python -m tools.generate``: write the generated files; ``--check`` compares them.

What is written: ``deploy/crds``, ``deploy/kustomize``, most of the chart, the dashboard, the pages of rules, rights,
metrics, alerts and the placement policy, and the messages of the kubelet's podresources API.
``make generate`` runs it; CI fails on a difference, so that they, the code that uses them and their documentation
cannot part. Not a command for users.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from tools.generate import (
    alerts_page,
    chart,
    chart_values,
    metrics_page,
    olm_bundle,
    podresources_messages,
    rights_page,
    rules_page,
    settings_pages,
)
from tools.generate.kustomize import FOLDER, HEADER, kustomize_files

from polyarch.cli.errors import UsageError
from polyarch.cli.output.documents import manifest_text
from polyarch.installation.objects import definitions
from polyarch.installation.settings import ComponentName, InstallationSettings
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.operator.components.dashboards import (
    BUILDS_DASHBOARD,
    NUMA_DASHBOARD,
    PLACEMENT_DASHBOARD,
    TAINTS_DASHBOARD,
)

USAGE = "usage: python -m tools.generate [--check] [DIRECTORY OF THE PROJECT]"
DASHBOARDS = (PLACEMENT_DASHBOARD, TAINTS_DASHBOARD, BUILDS_DASHBOARD, NUMA_DASHBOARD)
EVERYTHING = InstallationSettings(components=get_args(ComponentName))
FOLDERS = ("deploy/crds", f"{chart.FOLDER}/crds", f"{olm_bundle.FOLDER}/manifests", FOLDER)


@functools.cache
def generated() -> Mapping[str, str]:
    """Path within the project and content of every derived file; made once in a process, as it takes seconds."""
    crds = {
        f"deploy/crds/{document['metadata']['name']}.yaml": HEADER + manifest_text([document])
        for document in (*definitions(EVERYTHING), topology_crd())
    }
    values = {
        f"{chart.FOLDER}/values.yaml": chart_values.values(),
        f"{chart.FOLDER}/values.schema.json": chart_values.schema(),
        f"{chart.FOLDER}/README.md": chart_values.readme(),
    }
    pages = {
        rules_page.PATH: rules_page.rules_page(),
        **settings_pages.settings_pages(),
        rights_page.PATH: rights_page.rights_page(),
        metrics_page.PATH: metrics_page.metrics_page(),
        alerts_page.PATH: alerts_page.alerts_page(),
    }
    folders = ("deploy/dashboard", f"{chart.FOLDER}/dashboards")
    dashboards = {f"{folder}/{each.file}": each.text() for folder in folders for each in DASHBOARDS}
    bundle = {f"{olm_bundle.FOLDER}/{path}": text for path, text in olm_bundle.files().items()}
    messages = podresources_messages.files()
    return crds | kustomize_files() | chart.files() | values | bundle | pages | dashboards | messages


def main(arguments: Sequence[str]) -> int:
    """Exit code 0; 1 with ``--check`` if a file differs; 2 for anything else on the command line."""
    options = [argument for argument in arguments if argument.startswith("-")]
    places = [argument for argument in arguments if not argument.startswith("-")]
    if options not in ([], ["--check"]) or len(places) > 1:
        raise UsageError(USAGE)
    root = Path(places[0]) if places else Path.cwd()
    if not (root / "pyproject.toml").is_file():
        raise UsageError(f"{root} is not the project's directory: it has no pyproject.toml; {USAGE}")
    wanted = generated()
    different = [path for path, content in wanted.items() if _read(root / path) != content]
    stray = sorted(set(_present(root)) - set(wanted))
    if options:
        for path in (*different, *stray):
            print(f"{path} is not what the code says: run make generate", file=sys.stderr)
        return 1 if different or stray else 0
    for path in different:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path}")
    for path in stray:
        (root / path).unlink()
        print(f"removed {path}")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _present(root: Path) -> list[str]:
    """What nobody writes by hand, so that a file that is no longer generated goes."""
    return [str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).glob("**/*.yaml")]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
