"""ImageBuilds and ImageBuildRuns as wishes and executions."""

from typing import Any

import msgspec
import pytest
from build_wishes import execution, facts, wish

from polyarch.builds.api.resources import ArchitectureKey, Forced, Pin
from polyarch.builds.facts.build_facts import (
    ChildRecord,
    PinnedBase,
    active_execution,
    current_execution,
    own_executions,
    published_architectures,
)
from polyarch.builds.facts.objects import BuildObject, RunObject, StoredRun, build_request, execution_of

T1 = "2026-01-31T12:00:00Z"
START = 1769860800.0
METADATA = {"namespace": "team", "name": "web", "uid": "uid-web", "generation": 3, "creationTimestamp": T1}


def read(status: Any = None, **metadata: Any) -> Any:
    document = {"metadata": {**METADATA, **metadata}, "spec": {"strategy": "Emulated"}, "status": status}
    return build_request(msgspec.convert(document, BuildObject))


@pytest.mark.req("BD-013")
def test_what_the_status_remembers() -> None:
    status = {
        "currentRun": "web-1",
        "rebuildToken": "again",
        "bases": [
            {
                "reference": "quay.io/team/base:1",
                "digest": "sha256:top",
                "children": [{"architecture": "arm64", "digest": "sha256:child"}],
                "resolvedTime": T1,
            }
        ],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Published", "lastTransitionTime": T1}],
    }
    found = read(status, annotations={"polyarch.dev/architectures": "amd64", "other/one": "x"})
    assert (found.namespace, found.name, found.uid, found.generation, found.created) == (
        "team",
        "web",
        "uid-web",
        3,
        START,
    )
    assert (found.current, found.rebuild_honoured, found.spec.strategy) == ("web-1", "again", "Emulated")
    assert found.pins == (
        PinnedBase(
            reference="quay.io/team/base:1",
            digest="sha256:top",
            children={"arm64": "sha256:child"},
            resolved=START,
        ),
    )
    assert found.status == status
    assert found.annotations == {"polyarch.dev/architectures": "amd64"}


@pytest.mark.req("BD-324")
@pytest.mark.parametrize("status", [None, {}, {"currentRun": 5}, {"bases": "none"}], ids=str)
def test_a_status_that_cannot_be_read_remembers_nothing(status: Any) -> None:
    found = read(status)
    assert (found.current, found.pins, found.rebuild_honoured) == ("", (), "")


@pytest.mark.req("BD-324")
def test_one_member_that_cannot_be_read_does_not_hide_the_others() -> None:
    assert read({"currentRun": "web-1", "bases": "none", "conditions": 7}).current == "web-1"


def run(status: Any = None, **metadata: Any) -> Any:
    document = {
        "metadata": {"namespace": "team", "name": "web-1", "uid": "uid-run", "resourceVersion": "7", **metadata},
        "spec": {
            "imageBuild": {"name": "web", "uid": "uid-web", "generation": 3},
            "serial": 2,
            "buildKey": "abc",
            "architectures": [{"architecture": "arm64", "key": "k"}],
            "pins": [{"reference": "r", "architecture": "arm64", "digest": "d"}],
            "repository": "quay.io/team/web",
            "format": "Docker",
            "index": "Always",
            "indexAnnotations": {"a": "b"},
            "required": ["arm64"],
            "forced": {"token": "t"},
        },
        "status": status,
    }
    return execution_of(msgspec.convert(document, RunObject), recorded="{}")


@pytest.mark.req("BD-022")
def test_what_an_execution_is_for_and_how_far_it_is() -> None:
    child = {
        "architecture": "arm64",
        "phase": "Built",
        "key": "k",
        "execution": "Native",
        "host": "arm64",
        "job": "web-1-arm64",
        "jobUID": "uid-job",
        "node": "n1",
        "attempts": 2,
        "digest": "sha256:c",
        "size": 9,
        "mediaType": "m",
        "variant": "v8",
        "reusedFrom": "web-0",
        "startTime": T1,
        "completionTime": T1,
        "reason": "R",
        "message": "M",
    }
    condition = {"type": "Succeeded", "status": "False", "reason": "BuildFailed", "message": "arm64: x"}
    status = {
        "phase": "Failed",
        "architectures": [child],
        "result": "r@sha256:i",
        "conditions": [{"type": "IndexPushed", "reason": "No"}, condition],
        "startTime": T1,
        "completionTime": T1,
    }
    found = run(status, creationTimestamp=T1, deletionTimestamp=T1)
    assert (found.owner_name, found.owner_uid, found.serial, found.build_key) == ("web", "uid-web", 2, "abc")
    assert found.keys == (ArchitectureKey("arm64", "k"),)
    assert found.pins == (Pin("r", "arm64", "d"),)
    assert (found.repository, found.format, found.index_mode, found.index_annotations) == (
        "quay.io/team/web",
        "Docker",
        "Always",
        {"a": "b"},
    )
    assert (found.required, found.forced, found.recorded) == (("arm64",), Forced("t"), "{}")
    assert (found.phase, found.result, found.reason, found.message) == (
        "Failed",
        "r@sha256:i",
        "BuildFailed",
        "arm64: x",
    )
    assert (found.created, found.started, found.completed, found.deleting) == (START, START, START, True)
    assert found.children == (
        ChildRecord(
            architecture="arm64",
            phase="Built",
            key="k",
            execution="Native",
            host="arm64",
            job="web-1-arm64",
            job_uid="uid-job",
            node="n1",
            attempts=2,
            digest="sha256:c",
            size=9,
            media_type="m",
            variant="v8",
            reused_from="web-0",
            started=START,
            completed=START,
            reason="R",
            message="M",
        ),
    )
    assert found.status == status


@pytest.mark.req("BD-324")
def test_phases_that_do_not_exist_are_none() -> None:
    found = run({"phase": "Happy", "architectures": [{"architecture": "arm64", "phase": "Flying"}]})
    assert (found.phase, found.children[0].phase) == ("", "Pending")


@pytest.mark.req("BD-324")
def test_whose_a_run_is_says_its_spec() -> None:
    assert run(ownerReferences=[]).owner_uid == "uid-web"


@pytest.mark.req("BD-024")
def test_runs_of_a_former_object_are_never_current() -> None:
    former = execution("web-9", "amd64", owner="uid-former", created=9.0)
    own = execution("web-1", "amd64", created=1.0)
    given = facts(of=wish(current="web-9"), executions=(former, own))
    assert own_executions(given) == (own,)
    assert current_execution(given) == own
    assert current_execution(facts(of=wish(current="web-9"), executions=(former,))) is None


def test_the_current_execution_is_what_the_status_says() -> None:
    older, newer = execution("web-1", "amd64", completed=1.0), execution("web-2", "amd64", completed=2.0)
    assert current_execution(facts(of=wish(current="web-1"), executions=(newer, older))) == older
    assert current_execution(facts(of=wish(current="web-7"), executions=(newer, older))) == newer


def test_the_active_execution_is_the_newest_that_has_not_ended() -> None:
    ended = execution("web-3", "amd64", phase="Failed", created=3.0)
    old, new = (execution(f"web-{each}", "amd64", phase="Building", created=float(each)) for each in (1, 2))
    deleted = execution("web-4", "amd64", phase="Pending", created=4.0, deleting=True)
    assert active_execution(facts(executions=(new, ended, old, deleted))) == new
    assert active_execution(facts(executions=(ended, deleted))) is None


@pytest.mark.req("BD-042")
def test_a_partial_result_has_what_it_has() -> None:
    assert published_architectures(execution("web-1", "amd64", "arm64", lacking="arm64")) == {"amd64"}
    assert published_architectures(execution("web-1", "amd64", "arm64")) == {"amd64", "arm64"}
    assert published_architectures(None) == frozenset()


@pytest.mark.req("BD-348")
def test_a_run_that_is_kept_as_text_is_the_same_execution() -> None:
    """It holds nothing of the page that it came in."""
    document = {
        "metadata": {"name": "web-1", "namespace": "team", "uid": "u"},
        "spec": {"imageBuild": {"name": "web", "uid": "w"}, "repository": "quay.io/team/web"},
        "status": {
            "phase": "Succeeded",
            "result": f"quay.io/team/web@sha256:{'a' * 64}",
            "architectures": [{"architecture": "arm64", "phase": "Built", "digest": f"sha256:{'b' * 64}"}],
            "conditions": [{"type": "Succeeded", "status": "True", "reason": "Published", "message": "done"}],
        },
    }
    page = msgspec.json.encode({"items": [document]})
    [stored] = msgspec.json.decode(page, type=dict[str, list[StoredRun]])["items"]
    read = execution_of(stored)
    assert read == execution_of(msgspec.convert(document, RunObject))
    assert dict(read.status) == document["status"]
    assert len(bytes(stored.text)) < len(page)
    assert execution_of(msgspec.json.decode(b"{}", type=StoredRun)).status == {}


@pytest.mark.req("BD-324")
def test_a_status_that_is_null_is_none() -> None:
    assert execution_of(msgspec.json.decode(b'{"status": null}', type=StoredRun)).phase == ""
