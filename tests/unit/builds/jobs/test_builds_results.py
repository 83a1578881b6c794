"""What finished pods said is read, and nothing that they only pretend."""

import json

import pytest

from polyarch.builds.facts.build_facts import JobFacts, PodFacts
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.results import (
    JobFailure,
    index_failure,
    index_message,
    job_failure,
    pod_failure,
    push_message,
    shown_message,
)
from polyarch.oci.documents import OCI_INDEX, OCI_MANIFEST

DIGEST, CONFIG = "sha256:" + "1" * 64, "sha256:" + "2" * 64
SAID = {
    "v": 1,
    "digest": DIGEST,
    "size": 500,
    "mediaType": OCI_MANIFEST,
    "os": "linux",
    "architecture": "arm64",
    "variant": "",
    "config": CONFIG,
}


def message(**more):
    return json.dumps({**SAID, **more})


def job(pod=None, **more):
    given = {"namespace": "team", "name": "shop-1-arm64", "uid": "u1", "architecture": "arm64", "complete": 10.0}
    return JobFacts(**{**given, "pod": pod, **more})


def read(text):
    return push_message(text, architecture="arm64")


class TestChild:
    @pytest.mark.req("BD-149")
    def test_the_message_of_push_is_the_child(self):
        assert read(message()) == contract.PushMessage(
            digest=DIGEST, size=500, media_type=OCI_MANIFEST, os="linux", architecture="arm64", config=CONFIG
        )

    @pytest.mark.req("BD-149")
    def test_members_that_are_not_known_are_ignored(self):
        assert read(message(later={"x": 1})).digest == DIGEST

    @pytest.mark.req("BD-149")
    def test_arm64_is_arm64_v8(self):
        assert read(message(variant="v8")).variant == "v8"

    @pytest.mark.req("BD-149", "BD-322")
    @pytest.mark.parametrize(
        "hostile",
        [
            "",
            "null",
            "[]",
            "{}",
            "x" * 4096,
            "[" * 4096,
            "\x00\x01\x02" * 1000,
            "\ud800",
            message(v=2),
            message(v="1"),
            message(digest="latest"),
            message(digest=DIGEST + "0"),
            message(digest="../../etc/passwd"),
            message(digest=DIGEST.upper()),
            message(config=""),
            message(size=0),
            message(size=-1),
            message(size=1e99),
            message(size=5 * 1024 * 1024),
            message(mediaType=OCI_INDEX),
            message(mediaType="text/html"),
            message(architecture="amd64"),
            message(os="windows"),
            message(variant="x" * 33),
            message(variant="v8\x1b[2J"),
            message(variant="v8 and more"),
            message(variant="\u0661"),
            message(pad="x" * 4096),
            message() + "\n" + message(),
            json.dumps([SAID]),
            message().replace('"v": 1', '"v": 1.5'),
        ],
        ids=lambda text: repr(text)[:40],
    )
    def test_anything_else_is_as_if_there_were_no_message(self, hostile):
        assert read(hostile) is None


def ended(code, text="", container="build"):
    return PodFacts(name="shop-1-arm64-x", exit_code=code, message=text, container=container)


class TestFailure:
    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (40, "UserNamespaceUnavailable"),
            (41, "EmulatorMissing"),
            (42, "ContainerfileInvalid"),
            (43, "ArchitectureMismatch"),
            (44, "PushDenied"),
            (45, "LayoutInvalid"),
            (46, "InputMissing"),
            (47, "BuilderImageUnusable"),
            (1, "BuildFailed"),
            (137, "BuildFailed"),
            (None, "BuildFailed"),
        ],
    )
    def test_codes_have_their_reasons(self, code, reason):
        found = pod_failure(ended(code, "the end of the log"))
        assert found.reason == reason
        assert "the end of the log" in found.message

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ('unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file', "BuilderImageUnusable"),
            ('exec: "/bin/sh": exec format error', "BuilderImageUnusable"),
            ("error mounting volume: no space left on device", "BuildFailed"),
        ],
    )
    def test_an_image_without_the_shell_is_not_the_users_fault(self, said, reason):
        found = pod_failure(ended(128, f"failed to create containerd task: {said}"))
        assert (found.reason, said in found.message) == (reason, True)

    @pytest.mark.req("BD-147")
    def test_a_message_may_say_more_exactly(self):
        said = '{"v":1,"reason":"BaseImageUnauthorized","message":"x may not be pulled"}'
        assert pod_failure(ended(42, said)) == JobFailure("BaseImageUnauthorized", "x may not be pulled")

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize("code", [1, 43, 137])
    def test_a_message_cannot_choose_a_reason_of_another_code(self, code):
        """User code that escaped its chroot may write a message; the code is the kernel's word."""
        said = '{"v":1,"reason":"ContainerfileInvalid","message":"it was me"}'
        found = pod_failure(ended(code, said))
        assert found.reason != "ContainerfileInvalid"

    @pytest.mark.req("BD-216")
    def test_the_last_lines_of_the_log_are_shown_and_no_more(self):
        log = "".join(f"line {at}\x1b[31m\n" for at in range(1000))
        found = pod_failure(ended(1, log))
        assert "line 999" in found.message
        assert "\x1b" not in found.message
        assert len(found.message.encode()) < 1200

    @pytest.mark.req("BD-217")
    def test_the_deadline_is_a_timeout(self):
        found = job_failure(job(ended(137), failure_reason="DeadlineExceeded"))
        assert found.reason == "BuildTimeout"

    def test_a_job_without_pods_says_what_the_api_server_says(self):
        found = job_failure(job(None, failure_reason="BackoffLimitExceeded", failure_message="no more"))
        assert found == JobFailure("BuildFailed", "no more")


class TestIndex:
    @pytest.mark.req("BD-178")
    def test_the_index_job_reports_what_it_pushed(self):
        found = index_message(json.dumps({"v": 1, "digest": DIGEST, "size": 9, "mediaType": OCI_INDEX}))
        assert (found.digest, found.missing) == (DIGEST, ())

    @pytest.mark.req("BD-178")
    def test_or_whose_children_are_missing(self):
        assert index_message('{"v":1,"missing":["arm64"]}').missing == ("arm64",)

    @pytest.mark.req("BD-322")
    @pytest.mark.parametrize(
        "text",
        ["", "{}", '{"v":1}', json.dumps({"v": 1, "digest": DIGEST, "size": 9, "missing": ["arm64"]}), "x" * 4096],
    )
    def test_nothing_else(self, text):
        assert index_message(text) is None

    @pytest.mark.req("BD-178")
    @pytest.mark.parametrize(
        ("code", "said", "reason"),
        [
            (44, '{"v":1,"reason":"PushDenied","message":"no"}', "PushDenied"),
            (45, '{"v":1,"reason":"MixedFormats","message":"no"}', "MixedFormats"),
            (1, '{"v":1,"reason":"RegistryUnreachable","message":"no"}', "RegistryUnreachable"),
            (137, "Killed", "RegistryUnreachable"),
        ],
    )
    def test_its_failures_have_the_reasons_of_publishing(self, code, said, reason):
        assert index_failure(job(ended(code, said, "index"))).reason == reason


@pytest.mark.req("BD-322")
@pytest.mark.parametrize("text", ["", "a", "é" * 2000, "x" * 1023 + "é" * 3, "\n" * 5000, "日本語\n" * 1000])
def test_shown_text_always_fits_a_status(text: str) -> None:
    assert len(shown_message(text).encode()) <= 1024
