"""The pages of the project: every link leads somewhere, and commands of installing are run by a test."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
).stdout.split()
PAGES = sorted(name for name in TRACKED if not name.startswith(("tests/", "CHANGELOG")) and (ROOT / name).exists())
MODULES = [
    f"/{path.relative_to(ROOT)}" for top in ("src", "tests", "bench", "tools") for path in (ROOT / top).rglob("*.py")
]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
MODULE = re.compile(r"`((?:[\w-]+/)*\w+\.py)`")
OF_INSTALLING = ("installation.md", "helm.md", "kustomize.md", "olm.md", "migration.md")
BLOCK = re.compile(r"^```console([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    content = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(each) for each in HEADING.findall(content)} | set(re.findall(r'<a (?:id|name)="([^"]+)"', content))


def broken(page: str) -> list[str]:
    """Links of a page to files that do not exist, or to headings that a page does not have."""
    found = []
    for target in LINK.findall(CODE.sub("", FENCED.sub("", text(page)))):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        # Entries of the changelog are read from CHANGELOG.md, in the root.
        entry = page.startswith("changelog.d/") and page != "changelog.d/README.md"
        folder = ROOT if entry else (ROOT / page).parent
        file = (folder / name).resolve() if name else ROOT / page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            found.append(target)
    return found


@pytest.mark.skipif(not PAGES, reason="not a checkout of git")
@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(page) == []


@pytest.mark.skipif(not PAGES, reason="not a checkout of git")
@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_module_that_a_page_names_is_there(page: str) -> None:
    """By its name, or by the end of its path."""
    assert [name for name in MODULE.findall(text(page)) if not any(path.endswith(f"/{name}") for path in MODULES)] == []


@pytest.mark.req("IN-041")
@pytest.mark.parametrize("page", OF_INSTALLING)
def test_whatever_can_run_in_the_sandbox_is_run(page: str) -> None:
    """All but commands of OpenShift's own program."""
    unmarked = [content for mark, content in BLOCK.findall(text(f"docs/guide/{page}")) if mark.strip() != "run"]
    commands = [line for content in unmarked for line in content.splitlines() if line.startswith("$ ")]
    assert [each for each in commands if not each.startswith("$ oc ")] == []
