"""``polyarch lint`` and ``fix`` ask registries: each image once, and nobody when told so (MA004)."""

from typing import Any

import pytest
from commands import Command

PODS = """\
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - {{name: a, image: "{image}"}}
  - {{name: b, image: "{image}"}}
"""


@pytest.fixture
def registry(start_writable: Any) -> Any:
    started = start_writable()
    started.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    return started


@pytest.fixture
def run(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, clean_home: Any) -> Command:
    return Command("lint", capsys, monkeypatch, tmp_path)


@pytest.mark.req("MF-090")
def test_each_image_is_asked_for_once(run: Command, registry: Any) -> None:
    """Across files and processes."""
    for number in range(4):
        run.write(f"{number}.yaml", PODS.format(name=number, image=f"{registry.host}/team/app:1"))
    result = run(".", "--no-cache", known=False)
    assert result.code == 1
    assert result.out.count("MA101") == 4
    assert len([each for each in registry.seen if "/manifests/" in str(each)]) == 1


def test_a_platforms_file_answers_first(run: Command, registry: Any) -> None:
    image = f"{registry.host}/team/app:1"
    run.write("web.yaml", PODS.format(name="web", image=image))
    run.write("platforms.yaml", f'"{image}": [linux/s390x]\n')
    assert "linux/s390x" in run("web.yaml", "--platforms-file", "platforms.yaml", known=False).out
    assert list(registry.seen) == []


@pytest.mark.req("MF-093")
def test_offline_nobody_is_asked(run: Command, registry: Any) -> None:
    """No byte leaves."""
    run.write("web.yaml", PODS.format(name="web", image=f"{registry.host}/team/app:1"))
    result = run("web.yaml", "--offline", known=False)
    assert result.code == 3
    assert "--offline asks no registry" in result.out
    assert list(registry.seen) == []


@pytest.mark.req("MF-040")
def test_an_image_that_is_not_there_is_a_finding_and_the_run_complete(run: Command, registry: Any) -> None:
    """Absent will be absent when asked again."""
    run.write("web.yaml", PODS.format(name="web", image=f"{registry.host}/team/none:1"))
    assert run("web.yaml", known=False).code == 1


@pytest.mark.req("MF-040")
def test_a_registry_that_is_away_makes_the_run_incomplete(run: Command, registry: Any) -> None:
    """Transient."""
    run.write("web.yaml", PODS.format(name="web", image="127.0.0.1:1/team/app:1"))
    assert run("web.yaml", "--timeout", "5", "--insecure", "127.0.0.1:1", known=False).code == 3


def test_a_child_pin_is_found_and_repaired(run: Command, registry: Any) -> None:
    """MA004: the digest becomes that of the index which the tag shows, and a second run changes nothing."""
    child = registry.push_image("team/app", None, "linux/amd64")
    entries = [registry.entry("linux/amd64", child), registry.entry("linux/arm64")]
    index = registry.push_index("team/app", "1", entries=entries)
    path = run.write("web.yaml", PODS.format(name="web", image=f"{registry.host}/team/app:1@{child}"))
    assert "MA004" in run("web.yaml", "--no-cache", known=False).out
    run.name = "fix"
    assert run("web.yaml", "--write", "--no-cache", known=False).code == 0
    assert path.read_text().count(f"/team/app:1@{index}") == 2
    before = path.read_text()
    assert run("web.yaml", "--write", "--no-cache", known=False).code == 0
    assert path.read_text() == before
