"""What plays buildah in build pods of a sandbox keeps to their contract, and fails on request."""

import datetime as dt
import json
from pathlib import Path

import msgspec
import pytest

from polyarch.builds import names
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.contract import BuildDocument, FailureMessage
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.settings import InspectorSettings
from polyarch.sandbox.fake_buildah import (
    ARGUMENT,
    EVICTED_CODE,
    InjectedFaults,
    UnknownFault,
    digest_of_context,
    main,
    read_faults,
)
from polyarch.sandbox.nodes import pods
from polyarch.sandbox.nodes.reporting import evicted
from polyarch.sandbox.pods.outcome import PodFault, fault_of
from polyarch.sandbox.pods.programs import (
    BUILDAH_REPOSITORY,
    FakeBuildahFiles,
    NotInTheImage,
    fake_buildah_command,
    is_run,
)
from polyarch.sandbox.pods.spec import Container

CONTAINERFILE = "# a comment\nFROM docker.io/library/busybox:1.36\nRUN true \\\n  && true\nCOPY . /\n"
PIN = f"docker.io/library/busybox@sha256:{'c' * 64}"


class Pod:
    """The files of one build pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inputs = root / "in"
        self.context = root / "context"
        self.layout = root / "layout" / "image"
        self.termination_log = root / "termination-log"
        self.fault = root / "fault"
        for folder in (self.inputs, self.layout.parent):
            folder.mkdir(parents=True)
        self.termination_log.write_bytes(b"")

    def build(self, document: BuildDocument, containerfile: str = CONTAINERFILE) -> int:
        (self.inputs / contract.BUILD_DOCUMENT).write_bytes(msgspec.json.encode(document))
        (self.inputs / contract.CONTAINERFILE).write_text(containerfile, encoding="utf-8")
        return main(
            [
                f"--inputs={self.inputs}",
                f"--context={self.context}",
                f"--layout={self.layout}",
                f"--termination-log={self.termination_log}",
                f"--fault={self.fault}",
                f"--attempts={self.root / 'attempts'}",
            ]
        )

    @property
    def failure(self) -> FailureMessage:
        return msgspec.json.decode(self.termination_log.read_bytes(), type=FailureMessage)

    def images(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads((self.layout / "index.json").read_bytes())["manifests"]
        return found

    def configuration(self) -> dict[str, object]:
        manifest = json.loads(self._blob(self.images()[0]["digest"]))
        configuration: dict[str, object] = json.loads(self._blob(manifest["config"]["digest"]))
        return configuration

    def _blob(self, digest: str) -> bytes:
        return (self.layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def asked(architecture: str = "arm64", wish: str = "seconds=0", **more: object) -> BuildDocument:
    document = {"architecture": architecture, "arguments": {ARGUMENT: wish}, "timestamp": 0, **more}
    return msgspec.convert(document, BuildDocument)


@pytest.mark.req("BD-391")
def test_a_build_writes_one_image_of_its_architecture_and_says_its_steps(
    pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    document = asked(labels={"team": "shop"}, images={"docker.io/library/busybox:1.36": PIN})
    assert pod.build(document) == 0
    assert len(pod.images()) == 1
    configuration = pod.configuration()
    assert (configuration["os"], configuration["architecture"]) == ("linux", "arm64")
    assert configuration["created"] == "1970-01-01T00:00:00Z"
    assert configuration["config"] == {"Entrypoint": ["/bin/app"], "Labels": {"team": "shop"}}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"STEP 1/3: FROM {PIN}", "STEP 2/3: RUN true && true", "STEP 3/3: COPY . /"]


@pytest.mark.req("BD-391")
@pytest.mark.parametrize("format", ["OCI", "Docker"])
async def test_the_registry_client_reads_its_layout(pod: Pod, format: str) -> None:
    pod.build(asked(format=format))
    async with open_inspector(InspectorOptions(settings=InspectorSettings(layouts=True))) as inspector:
        answer = await inspector.inspect(f"oci:{pod.layout}")
    assert answer.error is None
    assert [str(each) for each in answer.platforms] == ["linux/arm64"]
    assert answer.digest == pod.images()[0]["digest"]


@pytest.mark.req("BD-391")
def test_equal_inputs_give_the_same_digest_and_any_other_input_another(pod: Pod) -> None:
    def digest(document: BuildDocument, containerfile: str = CONTAINERFILE) -> str:
        assert pod.build(document, containerfile) == 0
        return pod.images()[0]["digest"]

    first = digest(asked())
    assert digest(asked()) == first
    others = [
        digest(asked("amd64")),
        digest(asked(), CONTAINERFILE + "RUN true\n"),
        digest(asked(target="other")),
        digest(asked(labels={"a": "b"})),
        digest(asked(images={"docker.io/library/busybox:1.36": PIN})),
        digest(asked(timestamp=5)),
        digest(asked(format="Docker")),
    ]
    assert len({first, *others}) == len(others) + 1
    pod.context.mkdir()
    (pod.context / "main.c").write_text("int main", encoding="utf-8")
    assert digest(asked()) not in {first, *others}


@pytest.mark.req("BD-391")
def test_a_context_is_read_once_although_a_kubelet_keeps_its_files_behind_links(tmp_path: Path) -> None:
    plain, linked = tmp_path / "plain", tmp_path / "linked"
    (linked / "..1").mkdir(parents=True)
    plain.mkdir()
    for folder in (plain, linked / "..1"):
        (folder / "main.c").write_text("int main", encoding="utf-8")
    (linked / "..data").symlink_to("..1")
    (linked / "main.c").symlink_to("..data/main.c")
    assert digest_of_context(linked) == digest_of_context(plain) != ""
    assert digest_of_context(tmp_path / "absent") == ""


@pytest.mark.req("BD-147")
@pytest.mark.parametrize(("line", "code"), [("RUN exit 3", 3), ("RUN false", 1), ("run exit 42", 42)])
def test_a_failing_run_ends_with_1_whatever_its_own_code(pod: Pod, line: str, code: int) -> None:
    assert pod.build(asked(), f"{CONTAINERFILE}{line}\nRUN never\n") == 1
    assert pod.failure.reason == "BuildFailed"
    assert pod.failure.message == f"{line}: exit {code}"
    assert not pod.layout.exists()


@pytest.mark.req("BD-391")
@pytest.mark.parametrize(
    ("code", "reason"),
    [(7, "BuildFailed"), (names.NOT_IN_USER_NAMESPACE, "UserNamespaceUnavailable"), (names.USER_ERROR, None)],
)
def test_a_build_ends_with_the_exit_code_that_was_asked_for(pod: Pod, code: int, reason: str | None) -> None:
    assert pod.build(asked(wish=f"seconds=0,exit={code}")) == code
    assert pod.failure.reason == (reason or contract.EXIT_REASONS[code][0])


@pytest.mark.req("BD-391")
def test_a_mishap_of_the_first_attempts_is_over_after_them(pod: Pod) -> None:
    assert [pod.build(asked(wish="seconds=0,exit=1*2")) for _ in range(3)] == [1, 1, 0]


@pytest.mark.req("BD-391")
def test_a_build_is_evicted_once(pod: Pod) -> None:
    assert pod.build(asked(wish="seconds=0,evict")) == EVICTED_CODE
    assert fault_of(pod.fault) is PodFault.EVICT
    pod.fault.unlink()
    assert pod.build(asked(wish="seconds=0,evict")) == 0
    assert fault_of(pod.fault) is PodFault.NONE


@pytest.mark.req("BD-391")
def test_a_build_that_is_to_vanish_succeeds_first(pod: Pod) -> None:
    assert pod.build(asked(wish="seconds=0,vanish")) == 0
    assert len(pod.images()) == 1
    assert fault_of(pod.fault) is PodFault.VANISH


@pytest.mark.req("BD-391")
def test_a_build_gives_another_architecture_or_half_a_layout_on_request(pod: Pod) -> None:
    assert pod.build(asked(wish="seconds=0,architecture=s390x")) == 0
    assert pod.configuration()["architecture"] == "s390x"
    whole = len(list(pod.layout.rglob("*")))
    assert pod.build(asked(wish="seconds=0,layout")) == 0
    assert len(list(pod.layout.rglob("*"))) == whole - 1


@pytest.mark.req("BD-391")
@pytest.mark.parametrize("text", ["explode", "exit", "exit=0", "exit=256", "evict=1", "seconds=", "architecture=X86"])
def test_a_request_that_is_not_known_is_a_users_error(pod: Pod, text: str) -> None:
    with pytest.raises(UnknownFault, match="expected exit=CODE"):
        read_faults(text, 0)
    assert pod.build(asked(wish=text)) == names.USER_ERROR
    assert "SANDBOX_BUILD" in pod.failure.message


@pytest.mark.req("BD-391")
def test_nothing_is_asked_for_by_default() -> None:
    assert InjectedFaults.of({}) == InjectedFaults()


@pytest.mark.req("BD-391")
def test_the_builder_image_runs_the_builds_script_and_nothing_else() -> None:
    mounts = {contract.IN: "/pods/1/in", contract.LAYOUT_MOUNT: "/pods/1/layout", contract.TERMINATION_LOG: "/pods/1/t"}
    workplace = FakeBuildahFiles(fault="/pods/1/fault", attempts="/builds/1")
    image = f"{BUILDAH_REPOSITORY}:v1.41"
    assert is_run(image)
    found = fake_buildah_command(Container("build", image, list(contract.BUILD_COMMAND)), mounts, workplace)
    assert {"--inputs=/pods/1/in", "--layout=/pods/1/layout/image", "--termination-log=/pods/1/t"} < set(found)
    with pytest.raises(NotInTheImage, match="bash"):
        fake_buildah_command(Container("build", image, ["bash", "-c", "true"]), mounts, workplace)


@pytest.mark.req("BD-391")
def test_an_evicted_pod_says_so_as_a_kubelet_does() -> None:
    status = evicted(pods.Pod(), {"phase": "Failed", "conditions": []}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    disrupted = status["conditions"][0]
    assert (disrupted["type"], disrupted["status"]) == ("DisruptionTarget", "True")
    assert disrupted["reason"] == "TerminationByKubelet"
