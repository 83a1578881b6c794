"""What a role's process loads: idle memory is bounded, and most of it is modules."""

import subprocess
import sys
from pathlib import Path

import pytest

UNUSED = ("rich", "pygments", "cryptography", "numpy", "polyarch.sandbox", "polyarch.manifests")
IMPORTED = f"print('imported', *(name for name in {UNUSED!r} if name in sys.modules))"

ROLES = f"""
import sys
from polyarch.run.placement_controller import ROLE
from polyarch.run.placement_webhook import ROLE
from polyarch.run.logs import configure
configure("json")
{IMPORTED}
"""

COMMAND = f"""
import sys
from polyarch.cli import main
main(["run", "all", "--cert-dir", ".", "--kubeconfig", "missing"])
{IMPORTED}
"""


@pytest.mark.parametrize("code", [ROLES, COMMAND], ids=["the roles", "polyarch run"])
def test_a_role_loads_nothing_that_only_terminals_or_other_commands_need_pl_810(code: str, tmp_path: Path) -> None:
    """rich and pygments alone are 3 MiB; cryptography is for processes that issue certificates."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr
