"""What ``make docs`` adds to the pages before Sphinx reads them; that no link is broken, Sphinx itself says."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def conf() -> Any:
    spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "tools" / "docs" / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_contents_once(conf: Any) -> None:
    below: list[str] = []
    for page in conf.CONTENTS:
        source = [""]
        conf._with_contents(None, page, source)
        found = re.search(r"titlesonly:\n\n(.*?)\n```", source[0], re.DOTALL)
        assert found is not None
        folder = Path("/docs", page).parent
        below += [str((folder / name).resolve().relative_to("/docs")) for name in found[1].splitlines()]
    there = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(below) == sorted(there - {"README"})


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[first steps](first-steps.md#try)", "[first steps](first-steps.md#try)"),
        ("[picture](../pictures/soak.svg)", "[picture](../pictures/soak.svg)"),
        ("[`examples/`](../../examples/README.md)", "`examples/README.md`"),
        ("[taints dashboard](../../deploy/x.json)", "taints dashboard (`deploy/x.json` of the sources)"),
    ],
)
def test_a_file_that_is_not_on_the_site_is_named_instead_of_linked(conf: Any, written: str, shown: str) -> None:
    source = [written]
    conf._with_contents(None, "guide/placement", source)
    assert source[0] == shown
