"""What a release tells its users: every entry of ``changelog.d`` reaches them, in the order of the page."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tools.release.notes
import yaml
from tools.release.notes import WrongCommitError, notes

import polyarch

ROOT = Path(__file__).parents[2]
ENTRIES = {
    each.relative_to(ROOT).as_posix(): each.read_text(encoding="utf-8")
    for each in sorted((ROOT / "changelog.d").rglob("*.md"))
    if each.name != "README.md"
}
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def clone(path: Path) -> Path:
    """What ``make changelog`` needs of a clone, without an entry."""
    for name in ("pyproject.toml", "CHANGELOG.md", SETTINGS["template"]):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path / name)
    return path


def write(path: Path, **entries: str) -> None:
    """``taints__key_added`` is ``changelog.d/taints/key.added.md``."""
    for name, text in entries.items():
        target = path / "changelog.d" / (name.replace("__", "/").replace("_", ".") + ".md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def collect(path: Path, version: str) -> str:
    """The releases of CHANGELOG.md after ``make changelog``."""
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--date", "2026-01-02"]
    subprocess.run(command, cwd=path, check=True, capture_output=True, text=True)
    return (path / "CHANGELOG.md").read_text().partition("<!-- towncrier release notes start -->")[2].strip()


@pytest.mark.req("IN-021")
def test_every_entry_reaches_the_changelog(tmp_path: Path) -> None:
    """towncrier passes over a folder or a kind that it does not know: such an entry would be lost."""
    shutil.copytree(ROOT / "changelog.d", clone(tmp_path) / "changelog.d")
    page = " ".join(collect(tmp_path, "1.0.0").split())
    left = [each.relative_to(tmp_path).as_posix() for each in (tmp_path / "changelog.d").rglob("*.md")]
    assert left == ["changelog.d/README.md"]
    assert [name for name, text in ENTRIES.items() if f"- {' '.join(text.split())}" not in page] == []


@pytest.mark.req("IN-021")
def test_what_concerns_all_stands_first_then_one_capability_after_the_other(tmp_path: Path) -> None:
    """What is new has no heading of its own, and what has no entry is not there at all."""
    write(clone(tmp_path), sandbox__b_added="B", taints__k_fixed="K", taints__a_added="A", n_added="N", z_fixed="Z")
    assert collect(tmp_path, "1.0.0").split("\n\n") == [
        *("## 1.0.0 (2026-01-02)", "- N", "### Fixed", "- Z"),
        *("### Taints", "- A", "#### Fixed", "- K"),
        *("### Sandbox and demo", "- B"),
    ]


@pytest.mark.req("IN-021")
def test_a_later_release_stands_above_an_earlier_one(tmp_path: Path) -> None:
    write(clone(tmp_path), a_added="First.")
    collect(tmp_path, "1.0.0")
    write(tmp_path, taints__b_fixed="Second.")
    page = collect(tmp_path, "1.1.0")
    later = "## 1.1.0 (2026-01-02)\n\n### Taints\n\n#### Fixed\n\n- Second."
    assert page == f"{later}\n\n## 1.0.0 (2026-01-02)\n\n- First."


@pytest.mark.req("IN-021")
def test_notes_of_a_release_are_its_section_with_links_that_work_outside_of_the_repository() -> None:
    section = "- [Here](docs/a.md#b), [there](https://example.com/c)."
    changelog = f"# Changelog\n\n## 1.2.3 (2026-01-02)\n\n{section}\n\n## 1.2.0 (2025-01-02)\n\n- Old.\n"
    assert notes("v1.2.3", "1.2.3", changelog) == (
        "- [Here](https://github.com/polyarch/polyarch/blob/v1.2.3/docs/a.md#b), [there](https://example.com/c).\n"
    )


@pytest.mark.req("IN-021")
@pytest.mark.parametrize(
    ("tag", "version", "says"),
    [
        ("v1.2.4", "1.2.3", "tag it v1.2.3"),
        ("v1.2", "1.2", "not three numbers"),
        ("v1.2.0", "1.2.0", "has no section 1.2.0"),
    ],
)
def test_a_tag_on_the_wrong_commit_is_refused(tag: str, version: str, says: str) -> None:
    with pytest.raises(WrongCommitError, match=says):
        notes(tag, version, "## 1.2.3 (2026-01-02)\n\n- New.\n")


@pytest.mark.req("IN-021")
def test_no_release_while_an_entry_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(clone(tmp_path), a_added="First.", taints__b_added="Second.")
    collect(tmp_path, polyarch.__version__)
    monkeypatch.setattr(tools.release.notes, "ROOT", tmp_path)
    assert tools.release.notes.main([f"v{polyarch.__version__}"]) == 0
    write(tmp_path, taints__late_added="Third.")
    assert tools.release.notes.main([f"v{polyarch.__version__}"]) == 1
    assert "late.added.md" in capsys.readouterr().err


@pytest.mark.req("IN-021")
def test_a_release_has_one_version_everywhere() -> None:
    """In the files that `make generate` does not write; what it writes has that of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugin = yaml.safe_load((ROOT / "deploy" / "helm-post-renderer" / "plugin.yaml").read_text())
    assert project["version"] == plugin["version"] == polyarch.__version__
