"""``build.sh``, run by a real shell with a buildah that writes down what it is told."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from textwrap import indent

import pytest
from build_orders import DIGEST, FakePod, order

from polyarch.builds.facts.build_facts import Entitlement
from polyarch.builds.jobs.script import build_script
from polyarch.builds.jobs.spec import MachineJobMounts, PulledImage

HOSTILE = (
    "plain",
    "two words",
    "it's",
    "'; touch OWNED; '",
    "$(touch OWNED)",
    "`touch OWNED`",
    "${HOME}",
    "\\",
    "\\'",
    '"double"',
    "a\nb",
    "*",
    "&& touch OWNED #",
    "-x",
    "--isolation=oci",
    "مرحبا 日本語 🦭",
    "\t",
    "!history",
    "%s%n",
    "{v:-x}",
    "",
)
SHELLS = [each for each in ("dash", "bash", "busybox") if shutil.which(each)]


@pytest.fixture
def pod(tmp_path):
    return FakePod(tmp_path)


def _shell(name, folder):
    """The path of a program that is this shell."""
    if name != "busybox":
        return name
    (folder / "sh").write_text('#!/bin/sh\nexec busybox sh "$@"\n')
    (folder / "sh").chmod(0o755)
    return str(folder / "sh")


class TestValues:
    @pytest.mark.req("BD-146")
    @pytest.mark.parametrize("value", HOSTILE, ids=ascii)
    def test_every_value_of_a_user_reaches_buildah_as_it_is(self, pod, value):
        """Whatever it holds, the shell reads nothing of it: one argument, unchanged, and nothing else happens."""
        document = {
            "source": {"target": value, "secrets": [{"id": value, "secret": {"name": "s", "key": "k"}}]},
            "output": {"labels": {"a": value, value: "b"}},
        }
        images = [PulledImage(written=(f"from-{value}",), pull=f"registry.example.com/x{value}@{DIGEST}")]
        ran = pod.run(order(document, arguments={"MODE": value}, images=images))
        assert ran.code == 0, ran.output
        assert f"MODE={value}" in ran.values("--build-arg")
        assert sorted(ran.values("--label")) == sorted([f"a={value}", f"{value}=b"])
        assert ran.values("--secret") == [f"id={value},src={pod.root}/secrets/0"]
        assert ran.values("--target") == ([value] if value else [])
        assert ran.values("--build-context") == [f"from-{value}=docker-image://{images[0].pull}"]
        assert ran.flags("pull")[-1] == f"docker://{images[0].pull}"
        assert not list(pod.root.rglob("OWNED"))

    @pytest.mark.req("BD-146")
    @pytest.mark.parametrize("shell", SHELLS)
    def test_any_posix_shell_runs_it(self, pod, shell, tmp_path):
        pod.let("pull", 125, 'manifest unknown: "quoted" \\ back')
        ran = pod.run(
            order(images=[PulledImage(written=("x",), pull=f"r.example.com/x@{DIGEST}")]),
            shell=_shell(shell, tmp_path),
        )
        assert (ran.code, ran.said["reason"]) == (42, "BaseImageNotFound")
        assert 'manifest unknown: "quoted" \\ back' in ran.said["message"]

    @pytest.mark.req("BD-146")
    def test_the_flags_of_the_one_build(self, pod):
        ran = pod.run(
            order(
                {"reproducible": {"timestamp": 17}, "output": {"pullSecrets": [{"name": "one"}, {"name": "two"}]}},
                arguments={"B": "2", "A": "1"},
                images=[PulledImage(written=("busybox:${V}", "busybox:1"), pull=f"docker.io/library/busybox@{DIGEST}")],
            )
        )
        assert ran.code == 0, ran.output
        builds = [each for each in ran.calls if "build" in each and "--target=polyarch-syntax-check" not in each]
        assert len(builds) == 1
        pinned = f"docker-image://docker.io/library/busybox@{DIGEST}"
        assert ran.flags("build") == [
            "--isolation=chroot",
            "--pull=false",
            "--no-cache",
            "--identity-label=false",
            "--format=oci",
            "--platform=linux/arm64",
            f"--file={pod.root}/in/Containerfile",
            f"--iidfile={pod.root}/storage/image-id",
            "--timestamp=17",
            "--build-arg=SOURCE_DATE_EPOCH=17",
            "--build-arg=A=1",
            "--build-arg=B=2",
            f"--build-context=busybox:${{V}}={pinned}",
            f"--build-context=busybox:1={pinned}",
            f"--authfile={pod.root}/pull/0.json",
            f"{pod.root}/context",
        ]
        assert ran.flags("push")[-2:] == ["sha256:" + "1" * 64, f"oci:{pod.root}/layout/image"]

    @pytest.mark.req("BD-146")
    def test_not_reproducible_means_no_timestamp(self, pod):
        ran = pod.run(order({"reproducible": {"enabled": False}}))
        assert ran.values("--timestamp") == []
        assert not [each for each in ran.values("--build-arg") if "SOURCE_DATE_EPOCH" in each]

    @pytest.mark.req("BD-146")
    def test_the_order_of_maps_changes_nothing(self):
        one = order({"output": {"labels": {"a": "1", "b": "2"}}}, arguments={"x": "1", "y": "2"})
        other = order({"output": {"labels": {"b": "2", "a": "1"}}}, arguments={"y": "2", "x": "1"})
        assert build_script(one) == build_script(other)

    @pytest.mark.req("BD-146")
    def test_without_overlay_it_builds_on_vfs(self, pod):
        pod.let("mount", 1, "operation not permitted")
        ran = pod.run(order())
        assert ran.code == 0, ran.output
        assert "storage: vfs" in ran.output
        assert {each for call in ran.calls if "push" in call for each in call if "driver" in each} == {
            "--storage-driver=vfs"
        }

    @pytest.mark.req("BD-074")
    def test_a_run_sees_copies_of_the_files_of_an_entitlement(self, pod):
        """What a kubelet keeps beside them (``..data``) is not among them."""
        mounted = pod.root / "entitled" / "etc-yum-repos-d"
        (mounted / "..data").mkdir(parents=True)
        (mounted / "..data" / "a.repo").write_text("[a]")
        (mounted / "a.repo").symlink_to("..data/a.repo")
        ran = pod.run(order(given=GIVEN))
        assert ran.code == 0, ran.output
        (volume,) = ran.values("--volume")
        folder, inside = Path(volume.rpartition(":")[0]), volume.rpartition(":")[2]
        assert inside == "/etc/yum.repos.d"
        assert {each.name: each.is_symlink() for each in folder.iterdir()} == {"a.repo": False}

    @pytest.mark.req("BD-275")
    def test_shellcheck_finds_nothing_in_a_machine_os_build(self, tmp_path, peer):
        script = tmp_path / "build.sh"
        script.write_text(build_script(order(given=GIVEN)))
        found = subprocess.run([peer("shellcheck"), "--shell=sh", str(script)], capture_output=True, text=True)
        assert found.stdout == ""

    @pytest.mark.req("BD-146")
    @pytest.mark.parametrize("profile", ["UserNamespace", "Rootless", "Privileged"])
    @pytest.mark.parametrize("format", ["OCI", "Docker"])
    @pytest.mark.parametrize("context", ["None", "ConfigMap", "Git", "Image"])
    def test_shellcheck_finds_nothing(self, tmp_path, peer, profile, format, context):
        document = {
            "source": {"context": CONTEXTS[context]},
            "output": {"format": format, "pullSecrets": [{"name": "a"}, {"name": "b"}]},
        }
        script = tmp_path / "build.sh"
        script.write_text(build_script(order(document, profile=profile, host="amd64", arguments={"A": "it's"})))
        # 2016: a text in single quotes that looks as if it were meant for the shell: git's credential helper.
        command = [peer("shellcheck"), "--shell=sh", "--exclude=SC2016", str(script)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.stdout == ""


GIVEN = MachineJobMounts(
    context=("mc-worker",),
    containers=("etc-policy-worker",),
    entitled=(
        Entitlement(name="etc-yum-repos-d", kind="ConfigMap", object="etc-yum-repos-d", path="/etc/yum.repos.d"),
    ),
)
CONTEXTS = {
    "None": {"type": "None"},
    "ConfigMap": {"type": "ConfigMap", "configMap": {"name": "files"}},
    "Git": {
        "type": "Git",
        "git": {
            "url": "https://git.example.com/shop.git",
            "commit": "a" * 40,
            "directory": "web",
            "credentials": {"name": "git"},
        },
    },
    "Image": {"type": "Image", "image": {"reference": f"registry.example.com/team/shop@{DIGEST}"}},
}


_ABSENT = ' copier: stat: "/x": no such file or directory'
_GLOB = ' copier: stat: ["/x*"]: no such file or directory'
_IGNORED = " (1 filtered out using {context}/.containerignore): no such file or directory"


class TestEnds:
    @pytest.mark.req("BD-147")
    def test_without_a_user_namespace_nothing_runs(self, pod):
        pod.uid_map.write_text("         0          0 4294967295\n")
        ran = pod.run(order())
        assert (ran.code, ran.calls) == (40, [])
        assert ran.said["reason"] == "UserNamespaceUnavailable"
        assert "Rootless" in ran.said["message"]

    @pytest.mark.req("BD-147")
    def test_only_the_user_namespace_profile_asks_for_one(self, pod):
        pod.uid_map.write_text("         0          0 4294967295\n")
        assert pod.run(order(profile="Privileged")).code == 0

    @pytest.mark.req("BD-151")
    @pytest.mark.parametrize("shell", SHELLS)
    def test_a_rootless_build_goes_on_in_a_namespace_with_ids_of_its_own(self, pod, shell, tmp_path):
        ran = pod.run(order(profile="Rootless"), shell=_shell(shell, tmp_path))
        assert ran.code == 0, ran.output
        assert {(pod.root / name).read_text() for name in ("uid_map", "gid_map")} == {"0 1879048192 65536\n"}

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("profile", "lacks"),
        [
            ("Rootless", "unshare"),
            ("Rootless", "nsenter"),
            ("Rootless", "mount"),
            ("Rootless", "buildah"),
            ("UserNamespace", "buildah"),
            ("Privileged", "buildah"),
        ],
    )
    def test_a_builder_image_that_lacks_a_program_is_named_and_not_tried_again(self, pod, profile, lacks):
        (pod.bin / lacks).unlink()
        for name in ("sh", "sleep", "kill"):
            (pod.bin / name).symlink_to(shutil.which(name))
        ran = pod.run(order(profile=profile), path="")
        assert (ran.code, ran.said["reason"], ran.calls) == (47, "BuilderImageUnusable", [])
        assert f"builder image has no {lacks}" in ran.said["message"]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("problem", "code"),
        [
            ("error determining current user: user: lookup userid 0: no such file or directory", 47),
            ("mkdir /run/containers: permission denied", 47),
            ("write /polyarch/storage/vfs: no space left on device", 1),
            ("mkdir x: disk quota exceeded", 1),
            ("fork/exec /proc/self/exe: cannot allocate memory", 1),
        ],
    )
    @pytest.mark.parametrize("profile", ["Rootless", "UserNamespace"])
    def test_a_buildah_that_makes_not_even_an_empty_container_is_not_the_users_fault(self, pod, profile, problem, code):
        pod.let("from", 125, problem)
        ran = pod.run(order(profile=profile))
        assert (ran.code, ran.said["reason"] if ran.said else None) == (
            code,
            "BuilderImageUnusable" if code == 47 else None,
        )
        assert problem in ran.output
        assert not [each for each in ran.calls if "build" in each or "pull" in each]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("program", "says"),
        [("unshare", "No space left"), ("nsenter", "setns: not permitted"), ("mount", "/run: permission denied")],
    )
    def test_a_node_that_gives_a_rootless_pod_no_namespace_is_not_tried_again(self, pod, program, says):
        (pod.bin / program).write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
        ran = pod.run(order(profile="Rootless"))
        assert (ran.code, ran.said["reason"], ran.calls) == (40, "UserNamespaceUnavailable", [])
        assert says in ran.said["message"]

    @pytest.mark.req("BD-147")
    def test_a_rootless_pod_that_may_map_no_ids_is_not_tried_again(self, pod):
        (pod.root / "uid_map").mkdir(parents=True)
        ran = pod.run(order(profile="Rootless"))
        assert (ran.code, ran.said["reason"], ran.calls) == (40, "UserNamespaceUnavailable", [])
        assert "SETUID" in ran.said["message"]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize("problem", ["fork/exec /probe: exec format error", "no such file or directory", ""])
    def test_without_an_emulator_nothing_of_the_user_runs(self, pod, problem):
        pod.let("run", 1, problem)
        ran = pod.run(order(host="amd64"))
        assert (ran.code, ran.said["reason"]) == (41, "EmulatorMissing")
        assert not [each for each in ran.calls if "build" in each or "pull" in each]

    @pytest.mark.req("BD-147")
    def test_a_chroot_that_is_not_permitted_says_nothing_about_emulators(self, pod):
        pod.let("run", 1, "mount: operation not permitted")
        ran = pod.run(order(host="amd64"))
        assert (ran.code, ran.said) == (1, None)

    @pytest.mark.req("BD-147")
    def test_native_builds_try_no_emulator(self, pod):
        assert not [each for each in pod.run(order()).calls if "run" in each]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("problem", "code", "reason"),
        [
            ("reading manifest x: manifest unknown", 42, "BaseImageNotFound"),
            ("name unknown: repository name not known to registry", 42, "BaseImageNotFound"),
            ("unauthorized: access to the requested resource is not authorized", 42, "BaseImageUnauthorized"),
            ("denied: requested access to the resource is denied", 42, "BaseImageUnauthorized"),
            ("toomanyrequests: You have reached your pull rate limit, unauthorized", 1, None),
            ("dial tcp 127.0.0.1:1: connect: connection refused", 1, None),
            ("mkdir /x: permission denied", 1, None),
            ("open /etc/containers/policy.json: no such file or directory", 47, "BuilderImageUnusable"),
        ],
    )
    def test_what_a_registry_refuses_for_good_is_not_tried_again(self, pod, problem, code, reason):
        pod.let("pull", 125, problem)
        ran = pod.run(order(images=[PulledImage(written=("x",), pull=f"r.example.com/x@{DIGEST}")]))
        assert (ran.code, ran.said["reason"] if ran.said else None) == (code, reason)
        assert problem in ran.output
        assert not [each for each in ran.calls if "--no-cache" in each]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize("status", [*range(1, 8), *range(39, 49), 125, 126, 127, 137, 255])
    def test_no_status_of_buildah_or_of_a_run_is_passed_through(self, pod, status):
        pod.let("build", status, "subprocess exited")
        ran = pod.run(order())
        assert (ran.code, ran.said) == (1, None)

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize("command", ["push", "from"])
    def test_every_other_step_that_fails_is_tried_again(self, pod, command):
        pod.let(command, 42, "no space left on device")
        assert pod.run(order(host="amd64")).code == 1

    @pytest.mark.req("BD-147")
    def test_what_buildah_cannot_read_is_not_tried_again(self, pod):
        pod.let("syntax", 125, "Error: dockerfile parse error on line 3: unknown instruction: FRM")
        ran = pod.run(order())
        assert (ran.code, ran.said["reason"]) == (42, "ContainerfileInvalid")
        assert "line 3" in ran.said["message"]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("problem", "code"),
        [
            ('COPY x /": checking on sources under "{context}":' + _ABSENT, 42),
            ('ADD x /": checking on sources under "{context}":' + _ABSENT, 42),
            (
                'COPY ../x /": checking on sources under "{context}": possible escaping context directory error:'
                + _ABSENT,
                42,
            ),
            ('COPY x* /": checking on sources under "{context}": Rel: can\'t make  relative to {context};' + _GLOB, 42),
            ('COPY x /": no items matching glob "{context}/x" copied' + _IGNORED, 42),
            (
                'COPY x /": checking on sources under "/storage/buildah-context-425176/overlay/130917/merge":'
                + _ABSENT,
                42,
            ),
            ('COPY --from=made /x /": checking on sources under "/storage/vfs/dir/3360f03a":' + _ABSENT, 1),
            ('COPY x /": checking on sources under "{context}": copier: stat: "/x": permission denied', 1),
            ('RUN cat /x": while running runtime: exit status 1', 1),
        ],
    )
    def test_what_the_context_does_not_have_is_not_tried_again(self, pod, problem, code):
        """As buildah 1.28 and 1.44 say it, with instruction and path. Another stage may have the file the next time."""
        said = f'Error: building at STEP "{problem.format(context=pod.root / "context")}'
        pod.let("build", 125, f"a RUN said this\n{said}")
        ran = pod.run(order())
        assert ran.code == code, ran.output
        assert f"a RUN said this\n{said}\n" in ran.output
        told = ran.said or {"reason": None, "message": said}
        assert told["reason"] == ("ContainerfileInvalid" if code == 42 else None)
        assert said in told["message"]

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize("shell", SHELLS)
    def test_what_a_run_says_ends_nothing_for_good(self, pod, shell, tmp_path):
        """It may say what buildah would, but buildah has the last word."""
        said = f'Error: building at STEP "COPY x /": checking on sources under "{pod.root}/context":{_ABSENT}'
        for last, code in (('Error: building at STEP "RUN make": exit status 2', 1), (said, 42)):
            pod.let("build", 125, f"{said}\n{last}")
            ran = pod.run(order(), shell=_shell(shell, tmp_path))
            assert (ran.code, ran.said is None) == (code, code == 1), ran.output

    @pytest.mark.req("BD-146")
    def test_a_process_that_a_build_leaves_behind_holds_nothing_up(self, pod):
        """It has standard error still, as a daemon of a RUN may."""
        buildah, pid = pod.bin / "buildah", pod.root.parent / "pid"
        daemon = 'import subprocess\nleft = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)\n'
        daemon += f"open({str(pid)!r}, 'w').write(str(left.pid))\n"
        buildah.write_text(f"{buildah.read_text()}\nif '--no-cache' in arguments:\n{indent(daemon, '    ')}")
        began = time.monotonic()
        try:
            assert pod.run(order()).code == 0
            assert time.monotonic() - began < 30
        finally:
            os.kill(int(pid.read_text()), signal.SIGKILL)

    @pytest.mark.req("BD-149")
    def test_a_message_is_one_line_of_json_whatever_went_wrong(self, pod):
        noise = "".join(map(chr, range(1, 128))) + "é\u202e" + "x" * 5000
        pod.let("pull", 125, f"manifest unknown {noise}")
        ran = pod.run(order(images=[PulledImage(written=("x",), pull=f"r.example.com/x@{DIGEST}")]))
        assert set(ran.said) == {"v", "reason", "message"}
        text = (pod.root / "termination-log").read_bytes()
        assert text.count(b"\n") == 1
        assert len(text) < 4096

    @pytest.mark.req("BD-145")
    def test_pull_secrets_are_tried_in_turn(self, pod):
        pod.let("pull", 125, "unauthorized: no")
        document = {"output": {"pullSecrets": [{"name": "one"}, {"name": "two"}, {"name": "three"}]}}
        ran = pod.run(order(document, images=[PulledImage(written=("x",), pull=f"r.example.com/x@{DIGEST}")]))
        tried = [each for call in ran.calls if "pull" in call for each in call if each.startswith("--authfile")]
        assert tried == [f"--authfile={pod.root}/pull/{at}.json" for at in range(3)]
        assert ran.said["reason"] == "BaseImageUnauthorized"


class TestContexts:
    @pytest.mark.req("BD-145")
    def test_a_configmap_is_copied_into_plain_files(self, pod):
        data = {"data": {"app.conf": "1", ".hidden": "2"}}
        ran = pod.run(order({"source": {"context": CONTEXTS["ConfigMap"]}}, context_data=data))
        copied = sorted(call[-2].rpartition("/")[2] for call in ran.calls if "copy" in call)
        assert copied == [".hidden", "app.conf"]
        assert ran.flags("build")[-1] == f"{pod.root}/storage/mounted"

    @pytest.mark.req("BD-145")
    def test_an_image_is_fetched_by_digest(self, pod):
        ran = pod.run(order({"source": {"context": CONTEXTS["Image"]}}))
        assert ran.flags("pull")[-1] == f"docker://registry.example.com/team/shop@{DIGEST}"
        assert ran.flags("build")[-1] == f"{pod.root}/storage/mounted"

    @pytest.mark.req("BD-147")
    def test_an_image_that_is_gone_is_a_missing_input(self, pod):
        pod.let("pull", 125, "manifest unknown")
        ran = pod.run(order({"source": {"context": CONTEXTS["Image"]}}))
        assert (ran.code, ran.said["reason"]) == (46, "InputMissing")


class TestDocker:
    @pytest.mark.req("BD-146")
    def test_docker_manifests_are_laid_out_as_oci_layouts_are(self, pod):
        ran = pod.run(order({"output": {"format": "Docker"}}))
        assert ran.code == 0, ran.output
        layout = pod.root / "layout" / "image"
        digest = hashlib.sha256(b"manifest.json").hexdigest()
        assert json.loads((layout / "index.json").read_text())["manifests"] == [
            {
                "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                "digest": f"sha256:{digest}",
                "size": len("manifest.json"),
            }
        ]
        assert sorted(each.name for each in (layout / "blobs" / "sha256").iterdir()) == sorted([digest, "2" * 64])
        assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
class TestGit:
    @pytest.fixture
    def repository(self, tmp_path):
        folder = tmp_path / "repository"

        def git(*words):
            command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com", *words]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        (folder / "web").mkdir(parents=True)
        (folder / "web" / "app").write_text("1")
        (folder / "out").symlink_to("/etc")
        git("init", "--quiet")
        git("add", ".")
        git("commit", "--quiet", "-m", "x")
        return folder, git("rev-parse", "HEAD")

    def asked(self, folder, commit, directory=""):
        """The protocol of a file is not one that the script allows; here it is, so that no server is needed."""
        context = {"type": "Git", "git": {"url": f"file://{folder}", "commit": commit, "directory": directory}}
        return order({"source": {"context": context}})

    @pytest.fixture
    def git_pod(self, pod, monkeypatch):
        moved = pod.moved
        pod.moved = lambda text: moved(text).replace("GIT_ALLOW_PROTOCOL=http:https", "GIT_ALLOW_PROTOCOL=file")
        return pod

    @pytest.mark.req("BD-145")
    def test_the_commit_is_checked_out_without_its_history(self, git_pod, repository):
        folder, commit = repository
        ran = git_pod.run(self.asked(folder, commit, "web"))
        assert ran.code == 0, ran.output
        checkout = git_pod.root / "context" / "checkout"
        assert ran.flags("build")[-1] == f"{checkout}/web"
        assert (checkout / "web" / "app").read_text() == "1"
        assert not (checkout / ".git").exists()

    @pytest.mark.req("BD-147")
    @pytest.mark.parametrize(
        ("commit", "directory", "says"),
        [("b" * 40, "", "no such commit"), (None, "nowhere", "no such directory"), (None, "out", "leads out of it")],
    )
    def test_what_is_not_there_is_a_missing_input(self, git_pod, repository, commit, directory, says):
        folder, there = repository
        ran = git_pod.run(self.asked(folder, commit or there, directory))
        assert (ran.code, ran.said["reason"]) == (46, "InputMissing"), ran.output
        assert says in ran.said["message"]

    @pytest.mark.req("BD-333")
    def test_credentials_are_read_by_a_helper_for_one_host_only(self, pod):
        script = build_script(order({"source": {"context": CONTEXTS["Git"]}}))
        assert "credential.https://git.example.com.helper=!answer()" in script
        assert "/polyarch/git/password" in script
