"""What to type next: the last lines of ``polyarch up`` and of its demo, which work as they are in the same shell.

The sandbox's registries are named by the variable that podman and skopeo read, too, so that every command asks them and
nobody has to repeat an option. ``make demo`` installs polyarch where no shell looks for it; then its folder is named.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from polyarch.oci.mirror_files import ENVIRONMENT
from polyarch.sandbox import state
from polyarch.sandbox.state import Folder

PROGRAM = "polyarch"


def option(name: str) -> str:
    """``--name`` for commands about a sandbox that is not the usual one."""
    return "" if name == state.DEFAULT_NAME else f" --name {name}"


def after_up(folder: Folder, *, name: str, installed: bool, has_cells: bool = False, builds_to: str = "") -> str:
    """The end of ``polyarch up``; without polyarch in the sandbox, how to install it there. ``has_cells``: its nodes
    have NUMA cells. ``builds_to``: it builds images, and pushes them to this registry."""
    first = "kubectl run web --image=nginx:1.27" if installed else f"{PROGRAM} install --values {folder.values} --wait"
    chosen = option(name)
    extra = [(f"{PROGRAM} numa top", "what every NUMA cell has left")] if installed and has_cells else []
    if installed and builds_to:
        build = f"{PROGRAM} build run web --context DIR --repository {builds_to}/team/web"
        extra.append((build, "DIR has a Containerfile"))
    return _block(
        "Next:",
        folder,
        [
            ("kubectl get nodes -L kubernetes.io/arch", ""),
            (first, ""),
            *extra,
            (f"{PROGRAM} status{chosen}", ""),
            (f"{PROGRAM} up --demo{chosen}", "what polyarch is for, in a few minutes"),
            (f"{PROGRAM} down{chosen}", "stops it; the next up continues"),
        ],
    )


def after_demo(folder: Folder, *, name: str) -> str:
    """The end of the demo: the ways into what it left behind."""
    from polyarch.sandbox.demo.components import BUILD_NAME, BUILD_NAMESPACE  # what `up` alone has no use for
    from polyarch.sandbox.demo.show import WITH, WITHOUT

    chosen = option(name)
    return _block(
        "Try next:",
        folder,
        [
            (f"kubectl get pods -n {WITH} -o wide", f"and -n {WITHOUT}"),
            (f"{PROGRAM} explain impossible -n {WITH}", "why a pod is where it is, or nowhere"),
            (f"{PROGRAM} report --target arm64", "what could run on arm64, and what is in the way"),
            ("kubectl create deployment mine --image=mysql:8.4 --replicas=3", ""),
            (f"{PROGRAM} build status {BUILD_NAME} -n {BUILD_NAMESPACE}", "an image for every architecture"),
            (f"{PROGRAM} sandbox seed FILE{chosen}", "images of your own, any mix of platforms"),
            (f"{PROGRAM} status{chosen}", "what runs here, and where its logs are"),
            (f"{PROGRAM} down{chosen}", "stops it; the next up continues"),
        ],
    )


def path_to_program(environ: Mapping[str, str], executable: Path) -> str:
    """The folder that the shell has to be told, or nothing if it finds the program there, or it is not there."""
    home = executable.parent
    if not (home / PROGRAM).is_file():
        return ""
    found = shutil.which(PROGRAM, path=environ.get("PATH", ""))
    return "" if found is not None and Path(found).parent == home else str(home)


def _block(title: str, folder: Folder, lines: list[tuple[str, str]]) -> str:
    exports = [f"export KUBECONFIG={shlex.quote(str(folder.kubeconfig))}"]
    exports.append(f"export {ENVIRONMENT}={shlex.quote(str(folder.registries_conf))}")
    if home := path_to_program(os.environ, Path(sys.executable)):
        exports.append(f"export PATH={shlex.quote(home)}:$PATH")
    width = max(len(command) for command, note in lines if note)
    shown = [f"{command:{width}}   # {note}" if note else command for command, note in lines]
    if shutil.which("kubectl") is None:
        shown.append("# there is no kubectl here; polyarch needs none: https://kubernetes.io/docs/tasks/tools/")
    return "\n".join([title, *(f"  {line}" for line in [*exports, *shown]), ""])
