"""Which executions and images are deleted, and which are not."""

import itertools

import pytest

from polyarch.builds.api.resources import IndexStatus
from polyarch.builds.facts.build_facts import ChildRecord, Execution
from polyarch.builds.pruning import (
    LIMIT,
    ImageReferences,
    KeepFinalizer,
    PrunableImage,
    RemoveFinalizer,
    count_references,
    decide_finalizer,
    expired,
    unreferenced,
)

REPOSITORY = "quay.io/team/app"
_NUMBERS = itertools.count(1)


def digest(letter):
    return "sha256:" + letter * 64


def run(name, *children, phase="Succeeded", result="", created=None, repository=REPOSITORY, owner="uid", **more):
    """An execution: ``children`` as ``amd64=a`` for the digest of 64 letters a, ``result`` the letter of its index."""
    records = []
    for each in children:
        architecture, _, letter = each.partition("=")
        records.append(ChildRecord(architecture=architecture, phase="Built", digest=digest(letter)))
    return Execution(
        namespace="team",
        name=name,
        owner_uid=owner,
        phase=phase,
        repository=repository,
        children=tuple(records),
        result=f"{repository}@{digest(result)}" if result else "",
        created=float(next(_NUMBERS) if created is None else created),
        **more,
    )


def names(executions):
    return [each.name for each in executions]


def letters(images):
    return [image.digest[-1] for image in images]


class TestHistory:
    def expired(self, *executions, current="", active="", successful=3, failed=1, running=()):
        return names(
            expired(
                executions,
                owner_uid="uid",
                current=current,
                active=active,
                successful=successful,
                failed=failed,
                running=count_references((), running=running),
            )
        )

    @pytest.mark.req("BD-230")
    def test_the_latest_are_kept(self):
        good = [run(f"good-{n}", f"amd64={n}", result=f"{n}") for n in range(1, 7)]
        bad = [run(f"bad-{n}", phase="Failed") for n in range(3)]
        assert self.expired(*good, *bad) == ["good-1", "good-2", "good-3", "bad-0", "bad-1"]

    @pytest.mark.req("BD-230")
    @pytest.mark.parametrize("phase", ["Failed", "Interrupted", "Superseded"])
    def test_what_did_not_succeed_counts_as_failed(self, phase):
        assert self.expired(run("one", phase=phase), run("two", phase="Failed")) == ["one"]

    @pytest.mark.req("BD-218", "BD-230")
    def test_the_newest_is_kept_while_it_has_not_succeeded(self):
        """Its record is what keeps a failed build from starting over."""
        executions = [run("one", "amd64=1", result="a"), run("two", phase="Failed"), run("three", phase="Failed")]
        assert self.expired(*executions, failed=0) == ["two"]

    @pytest.mark.req("BD-230")
    def test_the_current_and_the_active_one_are_kept(self):
        executions = [run(f"r{n}", f"amd64={n}", result=f"{n}") for n in range(1, 6)]
        executions.append(run("going", phase="Building"))
        assert self.expired(*executions, current="r1", active="going", successful=1) == ["r2", "r3", "r4"]

    @pytest.mark.req("BD-230")
    def test_what_has_not_ended_is_never_old(self):
        pending = [run(f"p{n}", phase=phase) for n, phase in enumerate(["", "Pending", "Building", "Assembling"])]
        assert self.expired(*pending, successful=1, failed=0) == []

    @pytest.mark.req("BD-230")
    def test_oldest_first_ties_by_name(self):
        executions = [run(name, phase="Failed", created=age) for name, age in [("b", 1), ("a", 1), ("c", 0), ("z", 9)]]
        assert self.expired(*executions, failed=0) == ["c", "a", "b"]

    @pytest.mark.req("BD-230")
    def test_a_result_that_a_pod_runs_is_kept(self):
        executions = [run(f"r{n}", f"amd64={n}", result=chr(96 + n)) for n in range(1, 5)]
        running = [f"docker-pullable://mirror.example/app@{digest('a')}"]
        assert self.expired(*executions, successful=1, running=running) == ["r2", "r3"]

    @pytest.mark.req("BD-230")
    def test_a_tag_that_a_pod_names_keeps_its_execution(self):
        executions = [run(f"r{n}", f"amd64={n}", result=chr(96 + n)) for n in range(1, 5)]
        assert self.expired(*executions, successful=1, running=[f"{REPOSITORY}:r2-amd64"]) == ["r1", "r3"]
        assert self.expired(*executions, successful=1, running=["quay.io/team/other:r2"]) == ["r1", "r2", "r3"]

    @pytest.mark.req("BD-230")
    def test_a_child_that_kept_executions_share_keeps_no_other(self):
        """An architecture that never changes would keep every execution for ever."""
        executions = [run(f"r{n}", "amd64=0", f"arm64={n}", result=chr(96 + n)) for n in range(1, 5)]
        assert self.expired(*executions, successful=1, running=[f"x@{digest('0')}"]) == ["r1", "r2", "r3"]
        assert self.expired(*executions, successful=1, running=[f"x@{digest('2')}"]) == ["r1", "r3"]

    @pytest.mark.req("BD-024", "BD-230")
    def test_only_its_own(self):
        others = [run(f"other-{n}", owner="another uid") for n in range(9)]
        assert self.expired(*others, run("mine"), successful=1) == []

    @pytest.mark.req("BD-230")
    def test_what_is_being_deleted_is_not_deleted_again(self):
        executions = [run(f"r{n}", deleting=n == 1) for n in range(1, 4)]
        assert self.expired(*executions, successful=1) == ["r2"]


class TestCounting:
    """A digest goes only when nobody refers to it."""

    old = run("old", "amd64=1", "arm64=2", result="a")

    def gone(self, *kept, leaving=None, known=(), **claims):
        leaving = leaving or [self.old]
        return unreferenced(leaving, count_references(kept, **claims), known=(*kept, *known))

    @pytest.mark.req("BD-231")
    def test_index_first_then_children(self):
        images = self.gone()
        assert letters(images) == ["a", "1", "2"]
        assert [image.kind for image in images] == ["index", "child", "child"]
        assert [image.after for image in images] == [(), (digest("a"),), (digest("a"),)]

    @pytest.mark.req("BD-231")
    def test_own_tags_are_named(self):
        assert [image.tags for image in self.gone()] == [("old",), ("old-amd64",), ("old-arm64",)]

    @pytest.mark.req("BD-231")
    def test_a_shared_child_stays(self):
        assert letters(self.gone(run("new", "amd64=1", "arm64=3", result="b"))) == ["a", "2"]

    @pytest.mark.req("BD-092", "BD-231")
    @pytest.mark.parametrize("phase", ["Failed", "Building", "Interrupted"])
    def test_executions_of_any_outcome_refer(self, phase):
        """A failed one keeps its good children: they may be used again."""
        assert letters(self.gone(run("new", "arm64=2", phase=phase))) == ["a", "1"]

    @pytest.mark.req("BD-231")
    def test_another_namespace_and_kind_refer_too(self):
        other = run("mosc-0123", "amd64=2", result="c", owner="a config")
        assert letters(self.gone(other)) == ["a", "1"]

    @pytest.mark.req("BD-231")
    def test_another_repository_does_not(self):
        elsewhere = run("new", "amd64=1", "arm64=2", result="a", repository="quay.io/team/copy")
        assert letters(self.gone(elsewhere)) == ["a", "1", "2"]

    @pytest.mark.req("BD-232")
    def test_names_are_normalised(self):
        hub = run("hub", "amd64=1", repository="docker.io/library/app")
        for spelling in ("docker.io/app", "index.docker.io/app", "Docker.IO/library/app"):
            assert self.gone(run("new", "amd64=1", repository=spelling), leaving=[hub]) == ()

    @pytest.mark.req("BD-231")
    @pytest.mark.parametrize(
        ("claims", "left"),
        [
            ({"published": [f"{REPOSITORY}@{digest('2')}"]}, ["a", "1"]),
            ({"reused": [f"{REPOSITORY}@{digest('1')}"]}, ["a", "2"]),
            ({"running": [f"{REPOSITORY}@{digest('1')}"]}, ["a", "2"]),
            ({"running": [f"docker-pullable://mirror.example:5000/x@{digest('1')}"]}, ["a", "2"]),
            ({"running": [digest("1")]}, ["a", "2"]),
            ({"running": [f"{REPOSITORY}:old"]}, []),
            ({"running": [f"{REPOSITORY}:old-arm64"]}, []),
            ({"running": [f"{REPOSITORY}:latest", "", "not a reference @@"]}, ["a", "1", "2"]),
        ],
    )
    def test_statuses_plans_nodes_and_pods_refer(self, claims, left):
        assert letters(self.gone(**claims)) == left

    @pytest.mark.req("BD-231")
    def test_an_index_in_use_keeps_its_children(self):
        """Though no kept execution has them, and whoever recorded the index."""
        assert self.gone(running=[f"mirror.example/x@{digest('a')}"]) == ()
        published = {"published": [f"{REPOSITORY}@{digest('b')}"]}
        twin = run("twin", "amd64=1", "arm64=9", result="b")
        assert letters(self.gone(leaving=[self.old, twin], **published)) == ["a", "2"]

    @pytest.mark.req("BD-231")
    def test_a_child_waits_for_every_index_that_holds_it(self):
        images = self.gone(leaving=[self.old, run("old-2", "amd64=1", "arm64=3", result="b")])
        child = next(image for image in images if image.digest == digest("1"))
        assert child.after == (digest("a"), digest("b"))
        assert letters(images) == ["a", "b", "1", "2", "3"]

    @pytest.mark.req("BD-231")
    def test_a_single_child_is_its_own_result(self):
        images = self.gone(leaving=[run("one", "arm64=1", result="1")])
        assert [(image.kind, image.after, image.tags) for image in images] == [("child", (), ("one", "one-arm64"))]

    @pytest.mark.req("BD-231")
    def test_an_index_that_was_pushed_but_not_finished_goes_too(self):
        failed = run("failed", "amd64=1", phase="Failed", index=IndexStatus(digest=digest("a")))
        assert letters(self.gone(leaving=[failed])) == ["a", "1"]

    @pytest.mark.req("BD-236")
    def test_what_nobody_asks_to_delete_stays(self):
        """Without image deletion no execution leaves its images behind for counting."""
        assert unreferenced((), ImageReferences(), known=[self.old]) == ()


class TestFinalizer:
    REMAINING = (f"{REPOSITORY}@{digest('a')}", f"{REPOSITORY}@{digest('1')}")

    def decide(self, remaining, waited, problem="quay.io: HTTP 503"):
        return decide_finalizer(remaining, execution="old", deleting_since=1000.0, now=1000.0 + waited, problem=problem)

    @pytest.mark.req("BD-233")
    def test_it_goes_when_nothing_is_left(self):
        assert self.decide((), 0) == RemoveFinalizer()
        assert self.decide((), LIMIT * 9) == RemoveFinalizer()

    @pytest.mark.req("BD-233")
    @pytest.mark.parametrize("waited", [0, 30, 599])
    def test_it_holds_while_a_registry_fails(self, waited):
        found = self.decide(self.REMAINING, waited)
        assert isinstance(found, KeepFinalizer)
        assert 0 < found.seconds <= min(60, max(5, LIMIT - waited))

    @pytest.mark.req("BD-233")
    def test_the_last_try_is_at_the_limit(self):
        """It never hangs longer: the pause before the limit ends there."""
        assert self.decide(self.REMAINING, LIMIT - 2) == KeepFinalizer(2.0)

    @pytest.mark.req("BD-233")
    def test_after_ten_minutes_it_is_given_up_with_the_digests(self):
        found = self.decide(self.REMAINING, 600)
        assert isinstance(found, RemoveFinalizer)
        event = found.event
        assert (event.type, event.reason, event.execution) == ("Warning", "ImageCleanupAbandoned", "old")
        assert all(each in event.message for each in (*self.REMAINING, "HTTP 503", "10 min"))


def test_an_image_names_itself():
    assert (
        PrunableImage(repository="r.example/a", digest=digest("a"), kind="index").reference
        == f"r.example/a@{digest('a')}"
    )
