"""The image has bytecode of what a role loads of Python's own library, which python's image leaves out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONTAINERFILE = Path(__file__).parents[3] / "deploy" / "image" / "Containerfile"
WITHOUT = """\
import importlib, sys, sysconfig
from pathlib import Path
for role in ("operator", "placement_webhook", "placement_controller", "exec_monitor", "taints", "builder"):
    importlib.import_module(f"polyarch.run.{role}")
import polyarch.run.numa_exporter, polyarch.run.numa_extender
library = sysconfig.get_path("stdlib") + "/"
of_python = [
    each for each in sys.modules.values()
    if (getattr(each, "__file__", None) or "").startswith(library) and "-packages/" not in each.__file__
]
assert len(of_python) > 100
in_python = (each for each in of_python if getattr(each, "__cached__", None))
print(*(each.__name__ for each in in_python if not Path(each.__cached__).is_file()))
"""
"""Prints the modules of the standard library that all roles together load and that have no bytecode."""


@pytest.mark.req("PL-502")
def test_no_role_compiles_the_standard_library_when_it_starts(tmp_path: Path) -> None:
    instruction = re.search(
        r'^RUN (PYTHONHASHSEED=0 )?python3 -c "(.*?)"$', CONTAINERFILE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert instruction is not None
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    program = instruction[2].replace("\\\n", "")
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    shown = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, check=True, capture_output=True, text=True)
    assert shown.stdout.split() == []
