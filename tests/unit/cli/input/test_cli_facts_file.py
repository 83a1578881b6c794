"""Reading a facts file: YAML or JSON, and the line of what is wrong in it."""

import io
import json
import sys
from pathlib import Path

import pytest

from polyarch.cli.build.plan import load_facts_file
from polyarch.cli.errors import UsageError

CONTENT = """\
now: 2026-01-31T12:00:00Z
objects:
  - apiVersion: v1
    kind: Node
    metadata: {name: n1, creationTimestamp: 2026-01-31T11:00:00Z}
  - apiVersion: polyarch.dev/v1alpha1
    kind: ImageBuild
    metadata: {name: web, namespace: team}
    spec:
      source:
        containerfile: FROM scratch
      retries: 2
registry:
  quay.io/team/base:1:
    platforms: [linux/arm64]
settings: {maxActiveJobs: 3}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.yaml"


@pytest.mark.req("BD-003")
def test_yaml_with_times_that_nobody_quoted(path: Path) -> None:
    path.write_text(CONTENT)
    found = load_facts_file(str(path))
    assert found.now == 1769860800.0
    assert found.nodes[0].created == 1769860800.0 - 3600
    assert [each.name for each in found.requests] == ["web"]
    assert found.inspect("quay.io/team/base:1").platforms
    assert found.settings.max_active_jobs == 3


@pytest.mark.req("BD-003")
def test_json(path: Path) -> None:
    path.write_text(json.dumps({"now": "2026-01-31T12:00:00Z", "settings": {"maxActiveJobs": 3}}))
    assert load_facts_file(str(path)).settings.max_active_jobs == 3


@pytest.mark.req("BD-321")
def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"now: noon")))
    with pytest.raises(UsageError, match=r"^standard input:1: now: 'noon' is not a time"):
        load_facts_file("-")


WRONG = {
    "a member of another type": (
        "retries: 2",
        "retries: two",
        "12: objects[1].spec.retries: must be a whole number, not 'two'",
    ),
    "a member with an unknown name": ("registry:", "registyr:", "13: registyr: is unknown; did you mean registry?"),
    "a registry's answer": ("[linux/arm64]", "[linux]", "14: registry[quay.io/team/base:1]: "),
    "a member that is missing": ("now: 2026-01-31T12:00:00Z", "", "2: now: is missing"),
    "an object without a name": ("{name: n1, ", "{", "5: objects[0].metadata: the Node has no name"),
    "a key that is given twice": ("settings:", "registry:", "16:1: 'registry' is given twice"),
    "no YAML": ("objects:", "objects: [", ""),
}


@pytest.mark.req("BD-003")
@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_is_wrong_is_said_with_file_line_and_member(case: str, path: Path) -> None:
    old, new, expected = WRONG[case]
    path.write_text(CONTENT.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_facts_file(str(path))
    assert str(caught.value).startswith(f"{path}:{expected}")


@pytest.mark.req("BD-003")
def test_json_has_lines_too(path: Path) -> None:
    path.write_text('{\n  "now": "2026-01-31T12:00:00Z",\n  "objects": [\n    {"kind": 5}\n  ]\n}\n')
    with pytest.raises(UsageError) as caught:
        load_facts_file(str(path))
    assert str(caught.value) == f"{path}:4: objects[0]: has no kind; expected a Kubernetes object"


@pytest.mark.req("BD-321")
def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file or directory; give a YAML or JSON file with now, objects"):
        load_facts_file(str(path))


@pytest.mark.req("BD-320")
@pytest.mark.parametrize("content", ["", "\x00", "a: &a [*a]", "!!python/object:os.system {}"], ids=repr)
def test_rubbish_is_an_error_and_no_traceback(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(UsageError):
        load_facts_file(str(path))
