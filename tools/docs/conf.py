"""Sphinx's configuration for ``make docs``: the pages as they stand in ``docs/``, with search and a table of contents.

The pages are plain Markdown that reads well where the sources are looked at, so none of them holds a directive. Their
order on the site is added here, when they are read.
"""

import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyarch import __version__

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

project = "polyarch"
version = release = __version__
copyright = "the polyarch authors"  # noqa: A001  the name of Sphinx's setting
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
html_theme = "furo"
html_title = f"polyarch {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
# Blocks are shown as they are: the language of some is an output or a file that no lexer knows.
suppress_warnings = ["misc.highlighting_failure"]

CONTENTS = {
    "README": ("guide/README", "comparison", "design/README", "decisions/README"),
    "guide/README": ("guide/*", "guide/runbooks/README"),
    "guide/runbooks/README": ("guide/runbooks/*",),
    "design/README": ("design/*",),
    "decisions/README": ("decisions/*",),
}
"""Page to the pages below it; ``*`` stands for those of a folder, in the order in which the page links to them."""
LINKED = re.compile(r"\]\(([^)\s#]+)\.md[^)]*\)")
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s#]+)(#[^)]*)?\)")


def _first_link(page: str) -> Callable[[str], int]:
    """The place in a page at which it first leads to another one. Its tables are made for newcomers, task by task, so
    their order is the best one there is; what it does not lead to comes last."""
    folder = posixpath.dirname(page)
    links = LINKED.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    places: dict[str, int] = {}
    for place, target in enumerate(links):
        places.setdefault(posixpath.normpath(posixpath.join(folder, target)), place)
    return lambda name: places.get(name, len(links))


def _below(page: str) -> list[str]:
    folder = posixpath.dirname(page)
    found: list[str] = []
    for pattern in CONTENTS[page]:
        paths = sorted(DOCS.glob(f"{pattern}.md"))
        names = sorted((path.relative_to(DOCS).with_suffix("").as_posix() for path in paths), key=_first_link(page))
        found += [name for name in names if name != page and name not in found]
    return [posixpath.relpath(name, folder or ".") for name in found]


def _with_contents(app: Any, page: str, source: list[str]) -> None:
    """What Sphinx needs to know of the order of pages, and links to files of the sources without one: they are not
    part of the site, so their names stand there as text."""
    folder = (DOCS / page).parent

    def named(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        path = target.relative_to(ROOT).as_posix()
        label = link[1].strip("`")
        return f"`{path}`" if label.rstrip("/") in path else f"{link[1]} (`{path}` of the sources)"

    source[0] = OUTSIDE.sub(named, source[0])
    if page in CONTENTS:
        pages = "\n".join(_below(page))
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{pages}\n```\n"


def _with_index(app: Any, exception: Exception | None) -> None:
    """Servers and people look for ``index.html``; the pages call their first one README."""
    if exception is None:
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    app.connect("source-read", _with_contents)
    app.connect("build-finished", _with_index)
