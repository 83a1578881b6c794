"""What the parts of ``polyarch.oci`` may import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import polyarch.oci

PURE = (
    "auth.challenges",
    "documents",
    "image.entrypoint",
    "image.layers",
    "image.parsing",
    "inspection",
    "lru_cache",
    "mirror_files",
    "platforms_file",
    "pull_sources",
    "reference",
    "signature_policy",
    "write.assembly",
)


@pytest.mark.req("RG-001")
@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_loads_no_network_stack(module: str) -> None:
    """So that `polyarch lint --platforms-file` starts without one."""
    program = (
        f"import sys, polyarch.oci.{module}\n"
        "print([name for name in ('asyncio', 'aiohttp', 'socket', 'ssl', 'yaml') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.req("RG-001")
@pytest.mark.parametrize("module", ["platforms", "proxies", "selectors"])
def test_the_bottom_layer_loads_no_network_stack(module: str) -> None:
    program = (
        f"import sys, polyarch.{module}\n"
        "print([name for name in sys.modules if name in ('asyncio', 'aiohttp') or name.startswith('polyarch.oci')])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


FOUNDATIONS = ("polyarch.platforms.", "polyarch.proxies.", "polyarch.clock.", "polyarch.durations.")
SOURCES = sorted(Path(polyarch.oci.__file__).parent.rglob("*.py"))


@pytest.mark.req("RG-001")
@pytest.mark.parametrize("source", SOURCES, ids=[f"RG-001 {source.parent.name}.{source.stem}" for source in SOURCES])
def test_the_package_stands_on_few_things(source: Path) -> None:
    """The standard library, aiohttp, msgspec and the project's foundations, nothing of Kubernetes."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    foreign = {
        name
        for name in names
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "aiohttp", "msgspec"}
        and not name.startswith(("polyarch.oci.", *FOUNDATIONS, "polyarch.__version__"))
    }
    assert foreign == set()
