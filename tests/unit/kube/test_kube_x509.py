"""X.509 in one module."""

import ast
from pathlib import Path

import pytest

import polyarch

PACKAGE = Path(polyarch.__file__).parent


def imports(program: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.req("KR-056")
def test_certificates_of_webhooks_and_of_the_sandbox_are_made_and_read_by_one_module() -> None:
    """Whoever looks for how a certificate is made, or why one is refused, looks in one place."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "cryptography" in (program := path.read_text(encoding="utf-8"))
        and any(name.split(".")[0] == "cryptography" for name in imports(program))
    }
    assert users == {"kube/x509.py"}
