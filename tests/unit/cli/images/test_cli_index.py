"""``polyarch index`` as a user runs it, against scripted registries."""

import base64
import importlib
import json

import pytest

from polyarch.cli import main

GOLDEN_TYPE = "application/vnd.oci.image.index.v1+json"
DOCKER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)


pytestmark = pytest.mark.usefixtures("clean_home")


@pytest.fixture
def registry(parts, start_writable):
    """Images of three platforms under ``team/app:1-ARCH``."""
    registry = start_writable()
    for platform in ("linux/amd64", "linux/arm64", "linux/s390x"):
        architecture = platform.partition("/")[2]
        body = parts.layer({"app": architecture.encode() * 10})
        parts.put_image(registry, "team/app", f"1-{architecture}", platform, [body])
    return registry


@pytest.fixture
def run(capsys, registry):
    """``run("create", "@/app:1", …)``: exit code, stdout, stderr; ``@`` is the registry."""

    def run(*arguments):
        code = main(["index", *(str(each).replace("@/", f"{registry.host}/") for each in arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def create(run):
    """``create(…)``: the document of ``index create -o json``; the exit code must be 0."""

    def create(*arguments):
        code, out, err = run("create", *arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    return create


def index_of(registry, tag, repository="team/app"):
    return json.loads(registry.manifests[repository, registry.tags[repository, tag]][0])


def platforms_of(registry, tag, repository="team/app"):
    return [
        "/".join((each["platform"]["os"], each["platform"]["architecture"]))
        for each in index_of(registry, tag, repository)["manifests"]
    ]


AMD64, ARM64, S390X = "@/team/app:1-amd64", "@/team/app:1-arm64", "@/team/app:1-s390x"


class TestCreate:
    @pytest.mark.req("RG-150", "RG-153")
    def test_an_index_is_made_of_images_and_pushed(self, run, registry):
        code, out, err = run("create", "@/team/app:1", S390X, ARM64, AMD64)
        assert code == 0
        assert platforms_of(registry, "1") == ["linux/amd64", "linux/arm64", "linux/s390x"]
        first, header, *rows = out.splitlines()
        assert first == f"{registry.host}/team/app:1@{registry.tags['team/app', '1']} pushed"
        assert header.split() == ["PLATFORM", "DIGEST", "SIZE", "SOURCE", "NOTE"]
        assert [row.split()[0] for row in rows] == ["linux/amd64", "linux/arm64", "linux/s390x"]
        assert "tag 1" in err

    @pytest.mark.req("RG-157")
    def test_the_document_says_what_was_done(self, create, registry):
        """`polyarch.dev/index/v1`, every key."""
        document = create("@/other/app:1", AMD64, ARM64, "--tag", "2")
        digest = registry.tags["other/app", "1"]
        body = registry.manifests["other/app", digest][0]
        assert document == {
            "schemaVersion": "polyarch.dev/index/v1",
            "reference": f"{registry.host}/other/app:1",
            "digest": digest,
            "mediaType": GOLDEN_TYPE,
            "size": len(body),
            "tags": ["1", "2"],
            "changed": True,
            "children": [
                {
                    "platform": f"linux/{architecture}",
                    "digest": registry.tags["team/app", f"1-{architecture}"],
                    "size": len(registry.manifests["team/app", registry.tags["team/app", f"1-{architecture}"]][0]),
                    "source": f"{registry.host}/team/app:1-{architecture}",
                    "copied": True,
                }
                for architecture in ("amd64", "arm64")
            ],
            "dropped": [],
        }

    @pytest.mark.req("BD-181", "RG-155", "RG-157")
    def test_a_second_run_changes_nothing(self, run, create, registry):
        """No PUT, "unchanged", exit 0."""
        create("@/team/app:1", AMD64, ARM64)
        registry.forget_requests()
        code, out, _ = run("create", "@/team/app:1", ARM64, AMD64)
        assert (code, registry.writes) == (0, [])
        assert out.splitlines()[0].endswith(" unchanged")
        assert create("@/team/app:1", AMD64, ARM64)["changed"] is False

    @pytest.mark.req("RG-150")
    def test_several_tags_name_it(self, create, registry):
        """--tag, repeated; DEST has latest without a tag."""
        document = create("@/team/app", AMD64, "--tag", "2", "--tag", "3")
        assert document["tags"] == ["latest", "2", "3"]
        assert len({registry.tags["team/app", tag] for tag in ("latest", "2", "3")}) == 1

    def test_annotations_and_order_are_as_given(self, create, registry):
        create("@/team/app:1", S390X, AMD64, "--keep-order", "--annotation", "z=1", "--annotation", "a=b=c")
        assert platforms_of(registry, "1") == ["linux/s390x", "linux/amd64"]
        assert index_of(registry, "1")["annotations"] == {"a": "b=c", "z": "1"}

    @pytest.mark.req("RG-151")
    def test_a_platform_before_a_source_refines_or_selects(self, create, registry):
        create("@/team/app:1", AMD64, ARM64, S390X)
        document = create("@/team/app:2", "linux/amd64/v2=" + AMD64, "s390x=@/team/app:1")
        assert [each["platform"] for each in document["children"]] == ["linux/amd64/v2", "linux/s390x"]

    @pytest.mark.req("RG-150")
    def test_platforms_can_be_filtered(self, run, create):
        """--platform."""
        create("@/team/app:all", AMD64, ARM64, S390X)
        document = create("@/team/app:1", "@/team/app:all", "--platform", "linux/arm64,linux/s390x")
        assert [each["platform"] for each in document["children"]] == ["linux/arm64", "linux/s390x"]
        code, _, err = run("create", "@/team/app:2", AMD64, "--platform", "arm64")
        assert (code, "no image is left" in err) == (1, True)

    @pytest.mark.req("RG-156")
    def test_a_template_stands_for_its_platforms(self, create, registry):
        create("@/team/app:1", "--template", "@/team/app:1-ARCH", "--platforms", "linux/amd64,linux/arm64")
        assert platforms_of(registry, "1") == ["linux/amd64", "linux/arm64"]

    @pytest.mark.req("RG-156")
    @pytest.mark.parametrize("suffix", ["yaml", "json"])
    def test_a_file_says_all_of_it(self, create, registry, tmp_path, suffix):
        """--from-spec."""
        spec = {
            "image": f"{registry.host}/team/app:1",
            "tags": ["2"],
            "manifests": [
                {"image": f"{registry.host}/team/app:1-arm64", "platform": {"os": "linux", "architecture": "arm64"}},
                {"image": f"{registry.host}/team/app:1-amd64"},
            ],
            "annotations": {"a": "b"},
        }
        text = json.dumps(spec) if suffix == "json" else "# a comment\n" + json.dumps(spec, indent=1)
        (tmp_path / f"spec.{suffix}").write_text(text)
        document = create("--from-spec", tmp_path / f"spec.{suffix}", "--tag", "3")
        assert document["tags"] == ["1", "2", "3"]
        assert index_of(registry, "3")["annotations"] == {"a": "b"}

    @pytest.mark.req("RG-150")
    def test_a_dry_run_writes_nothing(self, run, create, registry):
        """--dry-run; the digest is the one that a push would have."""
        document = create("@/team/app:1", AMD64, ARM64, "--dry-run")
        assert (registry.writes, document["changed"]) == ([], True)
        assert create("@/team/app:1", AMD64, ARM64)["digest"] == document["digest"]
        code, out, _ = run("create", "@/team/app:1", AMD64, ARM64, "--dry-run")
        assert (code, out.splitlines()[0].rpartition(" ")[0].endswith("would be")) == (0, True)

    def test_a_dry_run_without_a_destination_still_says_what_it_knows(self, run, registry):
        code, out, err = run("create", "127.0.0.1:1/team/app:1", AMD64, "--dry-run", "-o", "json")
        assert (code, json.loads(out)["changed"]) == (0, None)
        assert "could not check the destination" in err

    @pytest.mark.req("RG-155")
    def test_images_are_copied_from_another_registry(self, create, registry, start_writable, parts):
        """Cross-registry copy."""
        other = start_writable()
        big = parts.layer({"big": bytes(100_000)}) + bytes(1_000_000)
        parts.put_image(other, "lab/app", "1", "linux/ppc64le", [big])
        document = create("@/team/app:1", AMD64, f"{other.host}/lab/app:1")
        assert [each["copied"] for each in document["children"]] == [False, True]
        assert big in registry.blobs.values()

    @pytest.mark.req("BD-181", "RG-120", "RG-150")
    def test_a_layout_directory_is_a_source(self, create, registry, parts, tmp_path):
        """Children built elsewhere can be joined."""
        folder = tmp_path / "out" / "blobs" / "sha256"
        folder.mkdir(parents=True)
        source = parts.WritableRegistry()
        body = parts.layer({"app": b"riscv"})
        digest = parts.put_image(source, "x", "1", "linux/riscv64", [body])
        contents = [*source.blobs.values(), source.manifests["x", digest][0]]
        for each in contents:
            (folder / parts.digest_of(each)[7:]).write_bytes(each)
        entry = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "1"}}
        (tmp_path / "out" / "index.json").write_text(json.dumps({"manifests": [entry]}))
        (tmp_path / "out" / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        document = create("@/team/app:1", AMD64, f"oci:{tmp_path}/out:1")
        assert document["children"][1]["platform"] == "linux/riscv64"
        assert registry.blobs["team/app", parts.digest_of(body)] == body


class TestAttestations:
    @pytest.fixture
    def attested(self, registry, parts):
        digest = registry.tags["team/app", "1-amd64"]
        attestation = parts.put_attestation(registry, "team/app", digest)
        registry.push_index("team/app", "attested", entries=[registry.entry("linux/amd64", digest), attestation])
        return attestation

    @pytest.mark.req("RG-154")
    def test_they_are_dropped_and_listed_on_stderr(self, run, registry, attested):
        code, out, err = run("create", "@/team/app:1", "@/team/app:attested", "-o", "json")
        [dropped] = json.loads(out)["dropped"]
        assert (code, dropped["digest"], dropped["subject"]) == (
            0,
            attested["digest"],
            registry.tags["team/app", "1-amd64"],
        )
        assert f"dropped: attestation {attested['digest']}" in err
        assert len(index_of(registry, "1")["manifests"]) == 1

    @pytest.mark.req("RG-154")
    def test_kept_ones_come_along_unchanged(self, create, registry, attested):
        """--attestations keep."""
        document = create("@/team/app:1", "@/team/app:attested", ARM64, "--attestations", "keep")
        assert index_of(registry, "1")["manifests"][-1] == attested
        assert [each["platform"] for each in document["children"]] == [
            "linux/amd64",
            "linux/arm64",
            "unknown/unknown",
        ]
        assert document["dropped"] == []


@pytest.mark.req("RG-151")
class TestAmend:
    """--amend starts from DEST's entries, a source replacing the same platform."""

    def test_entries_are_added_and_replaced(self, create, registry, parts):
        create("@/team/app:1", AMD64, ARM64, "--annotation", "a=b")
        parts.put_image(registry, "team/app", "new", "linux/amd64", salt="new")
        document = create("--amend", "@/team/app:1", "@/team/app:new", S390X)
        assert [each["platform"] for each in document["children"]] == ["linux/amd64", "linux/arm64", "linux/s390x"]
        assert document["children"][0]["digest"] == registry.tags["team/app", "new"]
        assert index_of(registry, "1")["annotations"] == {"a": "b"}

    def test_a_filter_is_for_the_sources(self, create):
        """What is there stays, whatever is taken from the sources."""
        create("@/team/app:1", AMD64)
        create("@/team/app:all", ARM64, S390X)
        document = create("--amend", "@/team/app:1", "@/team/app:all", "--platform", "s390x")
        assert [each["platform"] for each in document["children"]] == ["linux/amd64", "linux/s390x"]

    def test_a_destination_that_does_not_exist_yet_is_begun(self, run, registry):
        code, _, err = run("create", "--amend", "@/team/app:1", AMD64)
        assert (code, platforms_of(registry, "1")) == (0, ["linux/amd64"])
        assert "does not exist yet" in err

    def test_amending_with_what_is_there_changes_nothing(self, create, registry):
        create("@/team/app:1", AMD64, ARM64)
        registry.forget_requests()
        assert create("--amend", "@/team/app:1", ARM64)["changed"] is False
        assert registry.writes == []

    def test_a_destination_that_moved_meanwhile_is_left_alone(self, run, create, registry):
        """Two jobs that amend one index: the second must not undo the first."""
        create("@/team/app:1", AMD64)

        def moves(request):
            if request.content_type == GOLDEN_TYPE and ":" in request.path.rpartition("/")[2]:
                registry.push_index("team/app", "1", "linux/riscv64")

        registry.gate = moves
        code, _, err = run("create", "--amend", "@/team/app:1", ARM64)
        assert code == 3
        assert "run the command again" in err
        assert platforms_of(registry, "1") == ["linux/riscv64"]


@pytest.mark.req("RG-152")
class TestRefused:
    """Nothing pushed, exit 1."""

    @pytest.fixture(autouse=True)
    def nothing_is_written(self, registry):
        yield
        assert registry.writes == []

    def refused(self, run, *arguments):
        code, out, err = run("create", "@/team/app:1", *arguments)
        assert (code, out) == (1, ""), err
        assert "refused, nothing was pushed" in err
        return err

    def test_one_platform_from_two_sources(self, run, registry, parts):
        parts.put_image(registry, "team/app", "other", "linux/amd64", salt="other")
        err = self.refused(run, AMD64, "@/team/app:other")
        assert "team/app:1-amd64" in err
        assert "team/app:other" in err

    def test_images_of_both_families(self, run, registry, parts):
        parts.put_image(registry, "team/app", "docker", "linux/arm64", media=DOCKER)
        assert "never converted" in self.refused(run, AMD64, "@/team/app:docker")

    def test_a_type_of_the_other_family(self, run):
        assert "--type docker" in self.refused(run, AMD64, "--type", "docker")

    def test_annotations_on_a_docker_list(self, run, registry, parts):
        parts.put_image(registry, "team/app", "docker", "linux/arm64", media=DOCKER)
        self.refused(run, "@/team/app:docker", "--annotation", "a=b")

    def test_a_platform_that_the_config_contradicts(self, run):
        assert "is linux/amd64, not linux/arm64" in self.refused(run, "linux/arm64=" + AMD64)

    def test_an_image_that_does_not_say_its_platform(self, run, registry):
        registry.push_image("team/app", "silent", None, os="linux")
        assert "write PLATFORM=" in self.refused(run, "@/team/app:silent")

    @pytest.mark.req("BD-181", "BD-336")
    def test_a_required_platform_that_is_missing(self, run):
        err = self.refused(run, AMD64, ARM64, "--require", "linux/amd64,linux/s390x")
        assert "would lack linux/s390x" in err

    def test_a_source_that_is_missing(self, run):
        assert "--ignore-missing" in self.refused(run, AMD64, "@/team/app:nothing")


@pytest.mark.req("RG-152")
def test_a_missing_source_may_be_passed_over(run, registry):
    """--ignore-missing."""
    code, _, err = run("create", "@/team/app:1", AMD64, "@/team/app:nothing", "--ignore-missing")
    assert (code, platforms_of(registry, "1")) == (0, ["linux/amd64"])
    assert "team/app:nothing is left out" in err


@pytest.mark.req("RG-157")
class TestUsage:
    """Exit 2, before the first request."""

    @pytest.fixture(autouse=True)
    def nothing_is_asked(self, registry):
        yield
        assert registry.seen == []

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "give a destination"),
            (["@/team/app:1"], "at least one source"),
            (["@/team/app@sha256:" + "a" * 64, AMD64], "has a digest"),
            (["oci:out", AMD64], "is a layout directory"),
            (["@/team/app:1", "@/Team/app"], "upper-case"),
            (["@/team/app:1", "what=@/team/app"], "the source"),
            (["@/team/app:1", AMD64, "--tag", "a/b"], "is no tag"),
            (["@/team/app:1", AMD64, "--annotation", "a"], "not KEY=VALUE"),
            (["@/team/app:1", AMD64, "--platform", "linux"], "platform"),
            (["@/team/app:1", AMD64, "--require", "x/y/z/w"], "platform"),
            (["@/team/app:1", AMD64, "--template", "@/team/app:ARCH"], "go together"),
            (["@/team/app:1", AMD64, "--platforms", "linux/amd64"], "go together"),
            (["@/team/app:1", AMD64, "--type", "both"], "type"),
            (["@/team/app:1", AMD64, "--from-spec", "x.yaml"], "remove them from the command line"),
            (["--from-spec", "/nowhere/x.yaml"], "No such file"),
            (["@/team/app:1", AMD64, "--timeout", "0"], "--timeout"),
            (["@/team/app:1", AMD64, "--insecure", "a b"], "--insecure"),
            (["@/team/app:1", AMD64, "--authfile", "/nowhere"], "/nowhere"),
        ],
    )
    def test_what_is_wrong_is_named(self, run, arguments, said):
        code, out, err = run("create", *arguments)
        assert (code, out) == (2, "")
        assert said in err

    @pytest.mark.req("RG-156")
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("image: a\nmanifests:\n - {image: b, size: 1}\n", "manifests[0]: unknown member 'size'"),
            ("image: [\n", ":2:1: "),
            ("image: a\nimages: b\n", "unknown member 'images'"),
            ("\x00", "not YAML"),
        ],
    )
    def test_a_file_that_is_not_understood_is_named_with_its_place(self, run, tmp_path, text, said):
        path = tmp_path / "spec.yaml"
        path.write_text(text)
        code, _, err = run("create", "--from-spec", path)
        assert (code, said in err, str(path) in err) == (2, True, True), err

    def test_a_reference_that_is_none_is_not_shown(self, run):
        assert run("inspect", "Upper")[0] == 2


@pytest.mark.req("RG-157")
class TestFailures:
    """Exit 3, what was already pushed is named, a rerun completes it."""

    def test_a_push_that_breaks_off_names_what_it_did(self, run, registry, parts):
        answer = importlib.import_module("scripted_registry").Answer
        registry.script("PUT", "other/app/manifests/1$", answer(500), forever=True)
        code, out, err = run("create", "@/other/app:1", AMD64, ARM64)
        assert (code, out) == (3, "")
        index = next(key[1] for key, value in registry.manifests.items() if value[1] == GOLDEN_TYPE)
        assert "pushed so far: blob " in err
        assert f"index {index}" in err
        assert "run the command again to complete it" in err
        registry.clear_scripts()
        assert run("create", "@/other/app:1", AMD64, ARM64)[0] == 0

    def test_a_tag_that_is_immutable_is_no_reason_to_run_it_again(self, run, registry):
        """Exit 1: nothing but another tag completes it; that is what is said."""
        answer = importlib.import_module("scripted_registry").Answer
        said = b'{"errors":[{"code":"TAG_INVALID","message":"tag 1 already exists and cannot be overwritten"}]}'
        registry.script("PUT", "other/app/manifests/1$", answer(400, said), forever=True)
        code, out, err = run("create", "@/other/app:1", AMD64, ARM64)
        assert (code, out) == (1, "")
        assert "the tag 1 is immutable in this registry: " in err
        assert "choose another tag" in err
        assert "run the command again" not in err
        assert run("create", "@/other/app:2", AMD64, ARM64)[0] == 0

    def test_a_registry_that_cannot_be_asked(self, run):
        code, _, err = run("create", "@/team/app:1", "127.0.0.1:1/team/app:1")
        assert (code, "127.0.0.1:1" in err) == (3, True)
        assert run("inspect", "@/team/app:nothing")[0] == 3

    def test_a_source_with_unusable_content(self, run, registry):
        registry.push("team/app", "bad", b"{}")
        code, _, err = run("create", "@/team/app:1", "@/team/app:bad")
        assert (code, "team/app:bad" in err) == (3, True)

    def test_a_destination_that_may_not_be_written(self, run, registry, clean_home):
        registry.auth, registry.users, registry.writers = "basic", {"ann": "secret-word"}, set()
        (clean_home / ".docker").mkdir()
        entry = {"auth": base64.b64encode(b"ann:secret-word").decode()}
        (clean_home / ".docker" / "config.json").write_text(json.dumps({"auths": {registry.host: entry}}))
        code, out, err = run("create", "@/team/app:1", AMD64)
        assert code == 3
        assert f"writing needs push rights on {registry.host}/team/app" in err
        assert "secret-word" not in out + err


@pytest.mark.req("RG-150")
class TestInspect:
    """`polyarch index inspect REF` prints the tree with every entry, skipped ones too."""

    @pytest.fixture
    def tree(self, registry, parts):
        amd64 = registry.tags["team/app", "1-amd64"]
        inner = registry.push_index(
            "team/app", None, entries=[registry.entry("linux/arm64", registry.tags["team/app", "1-arm64"])]
        )
        nested = {"mediaType": GOLDEN_TYPE, "digest": inner, "size": 10}
        unstated = registry.entry(None, registry.tags["team/app", "1-s390x"])
        attestation = parts.put_attestation(registry, "team/app", amd64)
        chart = {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": "sha256:" + "c" * 64, "size": 1}
        missing = registry.entry(None, "sha256:" + "d" * 64)
        entries = [registry.entry("linux/amd64", amd64), nested, unstated, attestation, chart, missing]
        registry.push_index("team/app", "tree", entries=entries, annotations={"a": "b"})
        return entries

    def test_every_entry_has_a_row(self, run, tree):
        code, out, _ = run("inspect", "@/team/app:tree")
        lines = out.splitlines()
        assert code == 0
        assert " index, " in lines[0]
        assert [line.split()[0] for line in lines[2:]] == [
            "linux/amd64",
            "index",
            "linux/arm64",
            "linux/s390x",
            "skipped",
            "skipped",
            "skipped",
        ]
        assert lines[4].startswith("  linux/arm64")
        assert f"attestation, for {tree[0]['digest']}" in lines[6]

    def test_the_document_has_every_descriptor(self, run, registry, tree):
        code, out, _ = run("inspect", "@/team/app:tree", "-o", "json")
        document = json.loads(out)
        assert code == 0
        assert list(document) == [
            "schemaVersion",
            "reference",
            "kind",
            "digest",
            "mediaType",
            "size",
            "platform",
            "annotations",
            "entries",
        ]
        assert (document["schemaVersion"], document["annotations"]) == ("polyarch.dev/index-tree/v1", {"a": "b"})
        found = [(each["digest"], each["status"], each["platform"]) for each in document["entries"]]
        assert found == [
            (tree[0]["digest"], "runnable", "linux/amd64"),
            (tree[1]["digest"], "index", None),
            (tree[2]["digest"], "runnable", "linux/s390x"),
            (tree[3]["digest"], "skipped", None),
            (tree[4]["digest"], "skipped", None),
            (tree[5]["digest"], "skipped", None),
        ]
        assert [each["platform"] for each in document["entries"][1]["entries"]] == ["linux/arm64"]
        assert [each["reason"].partition(":")[0] for each in document["entries"][3:]] == [
            "attestation",
            "unknown-media-type",
            "no-platform",
        ]
        assert document["entries"][3]["annotations"] == tree[3]["annotations"]

    def test_a_single_image_is_said_to_be_one(self, run, registry):
        code, out, _ = run("inspect", AMD64)
        digest = registry.tags["team/app", "1-amd64"]
        assert (code, out.startswith(f"{registry.host}/team/app:1-amd64@{digest} image linux/amd64, ")) == (0, True)

    def test_an_empty_index_is_said_to_be_one(self, run, registry):
        registry.push_index("team/app", "empty")
        code, out, err = run("inspect", "@/team/app:empty")
        assert (code, len(out.splitlines()), "the index is empty" in err) == (0, 1, True)


def test_the_help_has_examples_and_exit_codes(run):
    code, out, _ = run("create", "--help")
    assert code == 0
    assert "polyarch index create quay.io/team/app:1.0" in out
    assert "Exit codes" in out
