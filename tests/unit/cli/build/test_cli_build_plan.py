"""``polyarch build plan``: what would be built and why, from a facts file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from polyarch.cli import main

EXAMPLE = Path(__file__).parents[4] / "examples" / "12-image-build" / "facts.yaml"
FACTS = EXAMPLE.read_text(encoding="utf-8")
Plan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """A command line that may reach no cluster, with these facts: exit code, stdout, stderr."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def plan(*words: str, facts: str = FACTS) -> tuple[int, str, str]:
        (tmp_path / "facts.yaml").write_text(facts, encoding="utf-8")
        code = main(["build", "plan", "--facts", str(tmp_path / "facts.yaml"), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return plan


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.req("BD-302")
def test_each_architecture_says_what_becomes_of_it_and_why(plan: Plan) -> None:
    code, out, _ = plan()
    assert code == 0
    assert out.startswith("team/web: Build (Building)\n")
    assert "amd64 Reuse key equal, from web-ac52d382f6-1" in lines(out)
    assert "arm64 Build build argument PAGES changed since web-ac52d382f6-1" in lines(out)
    assert "index to be pushed\ntags: web-e7aa8be2d2-1, 1.0\n" in out


@pytest.mark.req("BD-105")
def test_an_override_for_which_nothing_is_built_is_told(plan: Plan) -> None:
    """Nothing else says that a Containerfile is not used, or that the architecture is misspelt."""
    facts = list(yaml.safe_load_all(FACTS))
    (build,) = (each for each in facts[0]["objects"] if each["kind"] == "ImageBuild")
    build["spec"]["source"].setdefault("overrides", []).append({"architecture": "s390x", "buildArgs": {"A": "b"}})
    _, out, _ = plan(facts=yaml.safe_dump(facts[0]))
    assert "note: The override for s390x is not used: s390x is not among the architectures." in lines(out)


@pytest.mark.req("BD-003")
def test_a_file_may_hold_what_no_api_server_took(plan: Plan) -> None:
    """Neither a traceback, nor a name that a terminal would obey."""
    facts = yaml.safe_load(FACTS)
    build, run = facts["objects"][:2]
    build["metadata"]["name"] = run["spec"]["imageBuild"]["name"] = "web\x1b[2J"
    run["spec"]["repository"] = "no place"
    code, out, err = plan(facts=yaml.safe_dump(facts))
    assert (code, err) == (0, "")
    assert out.startswith("team/web�[2J: Build (Building)\n")
    assert "\x1b" not in out


@pytest.mark.req("BD-302")
def test_without_a_record_of_before_it_says_no_more_than_it_knows(plan: Plan) -> None:
    code, out, _ = plan(facts=FACTS.replace("outlines.json", "other.json"))
    assert code == 0
    assert "arm64 Build not built before" in lines(out)


@pytest.mark.req("BD-302")
def test_keys_are_printed_with_the_inputs_that_they_are_made_of(plan: Plan) -> None:
    _, out, _ = plan("--keys")
    documents = list(yaml.safe_load_all(out[out.index("architecture: amd64") :]))
    assert [each["architecture"] for each in documents] == ["amd64", "arm64"]
    assert documents[1]["inputs"]["args"] == {"PAGES": "64k"}
    run = next(each for each in yaml.safe_load(FACTS)["objects"] if each["kind"] == "ImageBuildRun")
    assert documents[0]["key"] == run["spec"]["architectures"][0]["key"]
    assert documents[1]["key"] != run["spec"]["architectures"][1]["key"]


@pytest.mark.req("BD-302")
def test_jobs_are_printed_as_they_would_be_made(plan: Plan) -> None:
    """Of the architecture that is built alone, with what it mounts."""
    _, out, _ = plan("--jobs")
    documents = list(yaml.safe_load_all(out[out.index("apiVersion:") :]))
    assert [(each["kind"], each["metadata"]["name"]) for each in documents] == [
        ("ConfigMap", "web-e7aa8be2d2-1-arm64-in"),
        ("Job", "web-e7aa8be2d2-1-arm64"),
    ]
    assert documents[1]["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] == "arm64"


INDEX = f"sha256:{'c' * 64}"
BUILT = FACTS.replace("64k", "4k").replace("settings:", f"  registry.example.com/team/web@{INDEX}: {{}}\nsettings:")
"""The inputs are those of the run that is there, whose index is in the registry."""
STATUS = f"  status: {{image: registry.example.com/team/web@{INDEX}, currentRun: web-ac52d382f6-1, tags: ['1.0']}}\n"
SECOND = "- apiVersion: polyarch.dev/v1alpha1\n  kind: ImageBuildRun"


@pytest.mark.req("BD-005", "BD-302", "BD-305")
@pytest.mark.parametrize(
    ("facts", "decision", "code"),
    [
        pytest.param(FACTS, "Build", 1, id="an architecture is to be built"),
        pytest.param(BUILT, "Retag", 1, id="a tag is to be moved"),
        pytest.param(BUILT.replace(SECOND, STATUS + SECOND), "UpToDate", 0, id="it is published"),
    ],
)
def test_check_ends_with_1_exactly_if_there_is_something_to_do(
    plan: Plan, facts: str, decision: str, code: int
) -> None:
    """And without --check with 0."""
    checked, out, _ = plan("--check", "--jobs", facts=facts)
    assert out.startswith(f"team/web: {decision} (")
    assert checked == code
    assert plan(facts=facts)[0] == 0
    assert ("no Job would be made" in out) == (decision != "Build")


@pytest.mark.req("BD-004", "BD-302", "BD-305")
def test_json_is_the_plan_itself(plan: Plan) -> None:
    _, out, _ = plan("-o", "json")
    document = json.loads(out)
    assert (document["schemaVersion"], document["decision"]) == ("polyarch.dev/build-plan.v1", "Build")
    assert {each["architecture"]: each["action"] for each in document["perArchitecture"]} == {
        "amd64": "Reuse",
        "arm64": "Build",
    }
    _, text, _ = plan()
    assert all(each["why"] and each["why"] in text for each in document["perArchitecture"]), "both say why"
    assert {each["kind"] for each in document["writes"]} >= {"ImageBuildRun", "Job", "ImageBuild"}


@pytest.mark.req("BD-302")
def test_a_build_that_the_file_does_not_have_is_told_with_those_that_it_has(plan: Plan) -> None:
    code, out, err = plan("shop")
    assert (code, out) == (2, "")
    assert "no ImageBuild named shop; the file has team/web" in err


@pytest.mark.req("BD-302")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((), "give NAME, -f FILE with ImageBuilds, or --facts FILE", id="nothing"),
        pytest.param(("-f", "web.yaml", "--facts", "x"), "remove -f, or --facts", id="two places"),
    ],
)
def test_a_command_line_without_a_build_is_told_so(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLE.parent)
    assert main(["build", "plan", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.req("BD-302", "BD-305", "BD-320")
def test_an_invalid_build_ends_with_2_and_says_where(plan: Plan) -> None:
    code, out, _ = plan(facts=FACTS.replace("ARG TARGETARCH", "AGR TARGETARCH"))
    assert code == 2
    assert "team/web: Invalid (ContainerfileInvalid)" in out
    assert "line 2" in out
