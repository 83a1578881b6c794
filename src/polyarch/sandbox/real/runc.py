"""``runc`` of a node that believes in more CPUs and zones than its machine has (``--numa``).

    python -m polyarch.sandbox.real.runc RUNC LOG ARGUMENT…

The kubelet decides about the CPUs and zones that it sees; the kernel has others. What it decided for a container is
written to LOG, one JSON line each, and the container gets all CPUs and zones of the machine.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(runc: str, log: str, arguments: Sequence[str]) -> None:
    """Becomes ``runc``; never returns."""
    arguments = list(arguments)
    command = next((each for each in arguments if each in {"create", "run", "update"}), "")
    name = arguments[-1] if arguments else ""
    if command in {"create", "run"}:
        bundle = Path(_option(arguments, "--bundle", "-b") or ".") / "config.json"
        document = json.loads(bundle.read_bytes())
        if _is_changed(document.get("linux", {}).get("resources", {}).get("cpu"), name, log):
            bundle.write_text(json.dumps(document), encoding="utf-8")
    elif command == "update" and _option(arguments, "--resources", "-r") == "-":
        document = json.load(sys.stdin)
        _is_changed(document.get("cpu"), name, log)
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(document).encode())
            file.seek(0)
            os.dup2(file.fileno(), 0)
    os.execv(runc, [runc, *arguments])  # noqa: S606


def _is_changed(cpu: dict[str, Any] | None, name: str, log: str) -> bool:
    """Take the sets out of ``linux.resources.cpu``, and note them."""
    if not cpu or not (cpu.get("cpus") or cpu.get("mems")):
        return False
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": name, "cpus": cpu.get("cpus", ""), "mems": cpu.get("mems", "")}) + "\n")
    cpu.pop("cpus", None)
    cpu.pop("mems", None)
    return True


def _option(arguments: Sequence[str], *names: str) -> str:
    for number, each in enumerate(arguments):
        for name in names:
            if each == name and number + 1 < len(arguments):
                return arguments[number + 1]
            if each.startswith(f"{name}="):
                return each.partition("=")[2]
    return ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
