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


def test_pages_come_in_the_order_in_which_their_index_leads_to_them(conf: Any) -> None:
    """Somebody new reads from top to bottom: first steps first, not the letter A."""
    assert conf._below("guide/README")[:3] == ["first-steps", "sandbox", "inspect-images"]
    assert conf._below("decisions/README")[0] == "0001-own-kubernetes-runtime"


@pytest.mark.parametrize("index", ["guide/README", "guide/runbooks/README", "design/README", "decisions/README"])
def test_an_index_leads_to_every_page_below_it(conf: Any, index: str) -> None:
    """A page that none leads to is found by searching alone."""
    links = {
        (ROOT / "docs" / index).parent / f"{name}.md"
        for name in conf.LINKED.findall((ROOT / "docs" / f"{index}.md").read_text())
    }
    links = {path.resolve() for path in links}
    below = {((ROOT / "docs" / index).parent / f"{name}.md").resolve() for name in conf._below(index)}
    assert below - links == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_every_page_begins_with_its_only_title(page: Path) -> None:
    """The site's navigation, and what a search finds, are made of titles."""
    text = re.sub(r"<!--.*?-->\s*", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert text.startswith("# ")
    assert (
        len(re.findall(r"^# ", re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE))
        == 1
    )


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
