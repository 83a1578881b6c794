"""A build in a real cluster from its first run to its last, as a user walks it: with the API server, the scheduler, the
registry, real Jobs, and nodes that play what builds images."""

import asyncio
import io
import json
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from build_yard import TEXT, Yard, mishap, one, phases
from registry_reader import Reader

from polyarch.builds import names
from polyarch.cli.build import image_builds
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.fake_buildah import ARGUMENT

Json = dict[str, Any]


@pytest.fixture
def sandbox(building_sandbox: Sandbox) -> Sandbox:
    return building_sandbox


@pytest.fixture
def yard(sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path) -> Yard:
    return Yard(sandbox, client, namespace, tmp_path)


@pytest.mark.req("BD-103", "BD-300", "BD-349", "BD-391")
async def test_first_run_second_run_one_architecture_changed(yard: Yard) -> None:
    """All are built, then nothing, then one."""
    first = await yard.run("--tag", "latest", "-o", "json", *mishap("seconds=0.2"))
    assert first.code == 0, first.err
    (told,) = first.document["builds"]
    assert told["image"].startswith(f"{yard.repository}@sha256:")
    assert [each["phase"] for each in told["architectures"]] == ["Built"] * 4
    before = await yard.children()
    assert sorted(before) == list(ASSUMED_ARCHITECTURES)
    assert (await yard.inspect(f"{yard.repository}:latest")).digest == told["image"].partition("@")[2]
    for line in ("shop amd64: built on amd64-1", "shop s390x: built on s390x-1"):
        assert line in first.err
    assert await yard.jobs() == []

    generation = (await yard.build())["metadata"]["generation"]
    again = await yard.run("--tag", "latest", "-o", "json")
    assert again.code == 0
    assert again.document["builds"][0]["image"] == told["image"]
    assert len(await yard.runs()) == 1
    assert (await yard.build())["metadata"]["generation"] == generation

    yard.write("Containerfile.arm64", TEXT + "RUN arm\n")
    planned = await yard.plan("-o", "json")
    assert (planned.code, planned.document["decision"]) == (0, "UpToDate")
    changed = await yard.run("--override", "arm64=Containerfile.arm64")
    assert changed.code == 0, changed.err
    assert "amd64 reused, arm64 build, ppc64le reused, s390x reused" in changed.err
    run = await yard.current()
    assert phases(run) == {"amd64": "Reused", "arm64": "Built", "ppc64le": "Reused", "s390x": "Reused"}
    after = await yard.children()
    assert {each: after[each] for each in ASSUMED_ARCHITECTURES if after[each] != before[each]} == {
        "arm64": after["arm64"]
    }


@pytest.mark.req("BD-300")
async def test_a_context_of_an_image_build_that_others_made_goes_to_its_repository(yard: Yard, client: Client) -> None:
    """As kubectl or GitOps makes it: nothing of it was ever said by a command line of ours."""
    spec = {"source": {"containerfile": TEXT}, "output": {"repository": yard.repository}}
    made = {**image_builds.named(yard.name, yard.namespace), "spec": spec}
    await client.create(names.IMAGE_BUILDS, made, namespace=yard.namespace)
    yard.write("app/notes", "of the context")
    done = await yard.command("run", yard.name, "--context", str(yard.folder / "app"), "--no-wait")
    assert done.code == 0, done.err
    context = (await yard.build())["spec"]["source"]["context"]
    assert context["type"] == "Image"
    assert context["image"]["reference"].startswith(f"{yard.repository}@sha256:")
    assert (await yard.inspect(context["image"]["reference"])).error is None
    refused = await yard.command("run", yard.name, "--repository", f"{yard.repository}-2", "--no-wait")
    assert refused.code == 2
    assert ".spec.output.repository belongs to" in refused.err, "what they asked for stays theirs"


@pytest.mark.req("BD-065")
async def test_pods_of_a_run_have_the_builder_image_by_digest(yard: Yard) -> None:
    first = await yard.run(*mishap("seconds=0.2"))
    assert first.code == 0, first.err
    run = await yard.current()
    own = run["spec"]["builder"]
    assert own["digest"].startswith("sha256:")
    assert own["pushDigest"].startswith("sha256:")
    pinned = next(each for each in run["status"]["conditions"] if each["type"] == "BuilderPinned")
    assert (pinned["status"], own["digest"] in pinned["message"]) == ("True", True)


@pytest.mark.req("BD-128", "BD-192", "BD-216", "BD-305", "BD-391")
async def test_one_fails_and_is_mended(yard: Yard) -> None:
    """Nothing is published, the good ones are kept, the mended one alone is built."""
    yard.write("Containerfile.arm64", TEXT + "RUN exit 3\n")
    failed = await yard.run("--override", "arm64=Containerfile.arm64", "--arch", "amd64,arm64", "--tag", "latest")
    assert failed.code == 1, failed.err
    assert "BuildFailed" in failed.out
    assert "RUN exit 3: exit 3" in failed.out
    assert "image" not in await yard.status()
    assert (await yard.inspect(f"{yard.repository}:latest")).error is not None
    (run,) = await yard.runs()
    assert phases(run) == {"amd64": "Built", "arm64": "Failed"}
    assert one(run, "arm64")["attempts"] == 4

    logs = await yard.command("logs", yard.name, "--arch", "arm64")
    assert "arm64 | STEP 3/3: RUN exit 3" in logs.out
    earlier = await yard.command("logs", yard.name, "--arch", "arm64", "--previous", "-o", "json")
    assert len({each["pod"] for each in earlier.document["lines"]}) == 3
    shown = await yard.command("status", yard.name)
    assert "arm64" in shown.out
    assert "BuildFailed" in shown.out
    planned = await yard.plan("-o", "json", "--check")
    assert (planned.code, planned.document["decision"]) == (1, "Held")

    yard.write("Containerfile.arm64", TEXT + "RUN mended\n")
    mended = await yard.run("--override", "arm64=Containerfile.arm64")
    assert mended.code == 0, mended.err
    assert phases(await yard.current()) == {"amd64": "Reused", "arm64": "Built"}
    assert (await yard.inspect(f"{yard.repository}:latest")).error is None


@pytest.mark.req("BD-142", "BD-150", "BD-217", "BD-391")
async def test_attempts_evictions_and_pods_that_vanish_cost_what_they_should(yard: Yard) -> None:
    """Failures are attempts, an eviction is none, and a lost message is found by its tag."""
    wishes = {"amd64": "exit=1*2", "arm64": "evict", "s390x": "vanish"}
    overrides = [
        {"architecture": each, "buildArgs": {ARGUMENT: f"seconds=0.2,{wish}"}} for each, wish in wishes.items()
    ]
    document = {
        "apiVersion": names.IMAGE_BUILDS.api_version,
        "kind": names.IMAGE_BUILDS.kind,
        "metadata": {"name": yard.name},
        "spec": {
            "source": {"containerfile": TEXT, "overrides": overrides},
            "output": {"repository": yard.repository},
            "architectures": {"mode": "Explicit", "list": sorted(wishes)},
        },
    }
    yard.write("shop.json", json.dumps(document))
    ran = await yard.command("run", "-f", "shop.json", "--timeout", "240")
    assert ran.code == 0, ran.err
    run = await yard.current()
    assert phases(run) == dict.fromkeys(wishes, "Built")
    assert {each: one(run, each)["attempts"] for each in wishes} == {"amd64": 3, "arm64": 1, "s390x": 1}


@pytest.mark.req("BD-147", "BD-173")
async def test_an_image_of_another_architecture_is_never_published(yard: Yard) -> None:
    """The push finds it, and no attempt is spent on it a second time."""
    ran = await yard.run("--arch", "arm64", *mishap("seconds=0.2,architecture=s390x"))
    assert ran.code == 1, ran.err
    assert "ArchitectureMismatch" in ran.out
    (run,) = await yard.runs()
    assert one(run, "arm64")["attempts"] == 1
    assert "image" not in await yard.status()


@pytest.mark.req("BD-300")
async def test_a_folder_is_a_context_that_is_sent_once(yard: Yard) -> None:
    """Equal files are the same context, and another file is built."""
    yard.write("src/main.c", "int main(void) { return 0; }\n")
    yard.write("src/Containerfile", TEXT + "COPY . /src\n")
    flags = ("--context", "src", "--arch", "amd64", *mishap("seconds=0.2"))
    first = await yard.run(*flags)
    assert first.code == 0, first.err
    assert "pushed" in first.err
    context = (await yard.build())["spec"]["source"]["context"]
    assert context["type"] == "Image"
    reference = context["image"]["reference"]
    assert (await yard.inspect(reference)).error is None
    tag = f"{yard.repository}:context-{reference.partition('@sha256:')[2][:12]}"
    assert (await yard.inspect(tag)).digest == reference.partition("@")[2]
    again = await yard.run(*flags)
    assert "there already" in again.err
    assert len(await yard.runs()) == 1
    yard.write("src/main.c", "int main(void) { return 1; }\n")
    third = await yard.run(*flags)
    assert third.code == 0, third.err
    assert len(await yard.runs()) == 2


@pytest.mark.req("BD-300")
async def test_what_an_ignore_file_names_never_reaches_the_registry(yard: Yard) -> None:
    """Also when a later command names the ignore file's Containerfile no more."""
    for name, text in {
        "src/.dockerignore": "\ufeffkey\r\nkept\r\n",
        "src/Containerfile": TEXT,
        "prod/x": TEXT + "COPY . /src\n",
        "prod/x.dockerignore": "\ufeff/key/\n",
        "src/key/private": "secret",
        "src/kept": "",
    }.items():
        yard.write(name, text)
    wish = ("--arch", "amd64", *mishap("seconds=0.2"))
    first = await yard.run("--context", "src", *wish)
    assert first.code == 0, first.err
    assert "src/.dockerignore with 2 patterns, pushed" in first.err
    assert await _sent(yard) == [".dockerignore", "Containerfile"]

    yard.write("prod/y", TEXT)
    (yard.folder / "src/Containerfile").unlink()
    second = await yard.run("--context", "src", "--containerfile", "prod/x", *wish)
    assert second.code == 0, second.err
    assert "prod/x.dockerignore with 1 pattern, pushed" in second.err
    assert await _sent(yard) == ["kept"]

    tagged = await yard.run("--tag", "2")
    assert tagged.code == 0, tagged.err
    refused = await yard.run("--context", "src")
    assert refused.code == 2, refused.err
    assert "x.dockerignore" in refused.err
    assert (await yard.run("--context", "src", "--containerfile", "prod/y", *wish)).code == 0
    assert await _sent(yard) == [".dockerignore"]
    assert (await yard.run("--context", "src", *wish)).code == 0


async def _sent(yard: Yard) -> list[str]:
    """The files of the build's context, as the registry has them."""
    repository = yard.repository.partition("/")[2]
    digest = (await yard.build())["spec"]["source"]["context"]["image"]["reference"].partition("@")[2]
    async with aiohttp.ClientSession() as session:
        reader = Reader(session, yard.sandbox.registry.address)
        _, manifest = await reader.document(repository, digest)
        (layer,) = [await reader.blob(repository, each) for each in manifest["layers"]]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return archive.getnames()


@pytest.mark.req("BD-126", "BD-193", "BD-300")
async def test_a_rebuild_of_one_architecture_renews_it_alone(yard: Yard) -> None:
    """The same inputs give the same digest."""
    flags = ("--arch", "amd64,arm64", *mishap("seconds=0.2"))
    assert (await yard.run(*flags)).code == 0
    before = await yard.children()
    again = await yard.run("--rebuild=arm64")
    assert again.code == 0, again.err
    assert phases(await yard.current()) == {"amd64": "Reused", "arm64": "Built"}
    assert await yard.children() == before


@pytest.mark.req("BD-301", "BD-305")
async def test_ctrl_c_detaches_and_the_same_command_goes_on(yard: Yard) -> None:
    """Exit code 130, the build goes on, and a later command sees its end."""
    process = await asyncio.create_subprocess_exec(
        *yard.words("run", yard.name, "--repository", yard.repository, "--arch", "amd64", *mishap("seconds=30")),
        cwd=yard.folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while b"STEP" not in (line := await process.stderr.readline()):
            assert line, "it ended before its first step"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert f"polyarch build run shop -n {yard.namespace}" in err.decode()
    assert (await yard.status())["activeRun"]
    over = await yard.command("run", yard.name, "--timeout", "240")
    assert over.code == 0, over.err
    assert len(await yard.runs()) == 1


@pytest.mark.req("BD-059", "BD-060", "BD-305")
async def test_what_cannot_be_built_is_told_at_once(yard: Yard) -> None:
    """A base without the architecture, before any Job; then a text that is none."""
    yard.write("Containerfile", "FROM quay.io/acme/billing:2.3\n")
    ran = await yard.run("--arch", "amd64,arm64")
    assert ran.code == 2, ran.err
    assert "BaseImageArchitectureMissing" in ran.out
    assert await yard.runs() == []
    yard.write("Containerfile", "FRM scratch\n")
    wrong = await yard.run("--containerfile", "Containerfile")
    assert wrong.code == 2, wrong.err
    assert "ContainerfileInvalid" in wrong.out


@pytest.mark.req("BD-305")
async def test_what_the_api_server_refuses_is_told_without_the_request_around_it(yard: Yard) -> None:
    """A tag that is wrong on an object that is there already, and a namespace that is not there at all."""
    made = await yard.command("run", yard.name, "--repository", yard.repository, "--arch", "amd64", "--no-wait")
    assert made.code == 0, made.err
    refused = await yard.command("run", yard.name, "--tag", "a b", "--no-wait")
    assert (refused.code, refused.err.partition(" must be")[0]) == (
        2,
        'polyarch: build run: spec.output.tags[0]: Invalid value: "a b": spec.output.tags[]',
    )
    yard.namespace, there = "nowhere", yard.namespace
    missing = (
        "there is no namespace nowhere; create it with: kubectl create namespace nowhere, or name another one with -n"
    )
    lost = await yard.command("run", yard.name, "--repository", yard.repository, "--no-wait")
    yard.namespace = there
    assert (lost.code, lost.err) == (2, f"polyarch: build run: {missing}\n")


@pytest.mark.req("BD-199", "BD-303")
async def test_status_lists_builds_and_says_what_is_the_matter(yard: Yard) -> None:
    """A suspended build is not waited for."""
    ran = await yard.run("--arch", "amd64", *mishap("seconds=0.2"))
    assert ran.code == 0, ran.err
    patch = MergePatch({"spec": {"suspend": True, "source": {"buildArgs": {"MODE": "other"}}}})
    await yard.client.patch(names.IMAGE_BUILDS, yard.name, patch, namespace=yard.namespace)
    suspended = await yard.command("run", yard.name, "--timeout", "120")
    assert suspended.code == 3, suspended.err
    assert "Suspended" in suspended.out
    listed = await yard.command("status", "-o", "json")
    (build,) = listed.document["builds"]
    assert (build["name"], build["namespace"]) == (yard.name, yard.namespace)
    everywhere = await asyncio.create_subprocess_exec(
        *yard.words("status", "-A")[:-2], stdout=asyncio.subprocess.PIPE, cwd=yard.folder
    )
    out, _ = await everywhere.communicate()
    assert yard.namespace in out.decode()


@pytest.mark.req("BD-304")
async def test_logs_are_followed_until_the_run_is_over(yard: Yard) -> None:
    started = await yard.command(
        "run", yard.name, "--repository", yard.repository, "--arch", "amd64,arm64", "--no-wait", *mishap("seconds=2")
    )
    assert started.code == 0, started.err
    await _until(yard.runs, bool)
    followed = await yard.command("logs", yard.name, "-f")
    assert followed.code == 0, followed.err
    for architecture in ("amd64", "arm64"):
        assert f"{architecture} | STEP 2/2: RUN true" in followed.out
    other = await yard.command("logs", yard.name, "--arch", "s390x")
    assert other.code == 2
    assert other.err.startswith("polyarch: build logs: --arch s390x: ")
    assert other.err.endswith("has amd64, arm64 only\n")
    finished = await yard.command("logs", yard.name)
    assert "its pod is gone" in finished.out or "STEP 2/2" in finished.out


async def _until(ask: Callable[[], Any], enough: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(120):
        while not enough(await ask()):
            await asyncio.sleep(0.2)
