"""Looking into the children of an index, against a scripted registry."""

import gzip

import pytest
from image_parts import elf, layer, link, put_image, tar
from scripted_registry import Answer, digest_of, encode

from polyarch.oci.documents import DOCKER_SCHEMA1 as SCHEMA1
from polyarch.oci.image import deep_inspection
from polyarch.oci.image.deep_inspection import look_deeper
from polyarch.oci.inspection import Status


@pytest.fixture
def index(registry):
    """``index({"linux/arm64": digest})``: an index ``team/app:1`` of these entries."""

    def push(entries, tag="1"):
        registry.push_index(
            "team/app", tag, entries=[registry.entry(platform, digest) for platform, digest in entries.items()]
        )

    return push


@pytest.fixture
def image(registry):
    """``image("linux/arm64", layer(…))``: an image that starts ``/app``; its digest."""

    def push(platform, *layers, command="/app", **more):
        return put_image(registry, "team/app", None, platform, layers, Entrypoint=[command], **more)

    return push


@pytest.fixture
def look(inspector, ref, registry):
    """``await look("config")``: the answer for ``team/app:1`` and a look into it; requests before are forgotten."""

    async def look(depth, name="team/app:1"):
        answer = await inspector.inspect(ref(name))
        registry.seen.clear()
        return await look_deeper(inspector.connection, answer, depth)

    return look


def codes(answer):
    return [warning.code for warning in answer.warnings]


class TestConfig:
    async def test_a_true_index_has_no_warning(self, look, index, image):
        index({"linux/amd64": image("linux/amd64"), "linux/arm64": image("linux/arm64")})
        answer = await look("config")
        assert (answer.status, answer.warnings) == (Status.RESOLVED, ())

    @pytest.mark.req("RG-048", "RG-170")
    async def test_an_entry_that_its_config_contradicts_is_mislabelled(self, look, index, image):
        """Both values are named; the entry's platform stays the answer."""
        index({"linux/amd64": image("linux/amd64"), "linux/arm64": image("linux/amd64", salt="x")})
        answer = await look("config")
        [warning] = answer.warnings
        assert warning.code == "mislabelled"
        assert "linux/arm64" in warning.message
        assert "the entry says linux/arm64, its config linux/amd64" in warning.message
        assert [str(each) for each in answer.platforms] == ["linux/amd64", "linux/arm64"]

    async def test_a_system_can_be_mislabelled_too(self, look, index, image):
        index({"windows/amd64": image("linux/amd64")})
        assert codes(await look("config")) == ["mislabelled"]

    @pytest.mark.req("RG-020")
    async def test_another_spelling_is_no_difference(self, look, index, image):
        """x86_64 and aarch64 are amd64 and arm64."""
        index({"linux/amd64": image("linux/x86_64"), "linux/arm64": image("linux/aarch64")})
        assert (await look("config")).warnings == ()

    async def test_a_config_that_names_no_architecture_contradicts_nothing(self, look, index, registry):
        index({"linux/arm64": registry.push_image("team/app", None, None, os="linux")})
        assert (await look("config")).warnings == ()

    @pytest.mark.req("RG-048")
    async def test_a_variant_is_not_compared(self, look, index, image):
        """Os and architecture."""
        index({"linux/arm/v6": image("linux/arm/v7")})
        assert (await look("config")).warnings == ()

    @pytest.mark.req("RG-048")
    @pytest.mark.parametrize("part", ["manifest", "config"])
    async def test_a_child_that_is_gone_is_missing(self, look, index, image, registry, part):
        """A child answering 404."""
        digest = image("linux/arm64")
        index({"linux/arm64": digest})
        if part == "manifest":
            del registry.manifests["team/app", digest]
        else:
            registry.blobs.clear()
        answer = await look("config")
        [warning] = answer.warnings
        assert (warning.code, answer.status) == ("child-missing", Status.RESOLVED)
        assert f"its {part} is not there" in warning.message

    async def test_an_index_behind_an_entry_with_a_platform_is_mislabelled(self, look, registry):
        inner = registry.push_index("team/app", None, "linux/arm64")
        registry.push_index("team/app", "1", entries=[registry.entry("linux/arm64", inner)])
        assert codes(await look("config")) == ["mislabelled"]

    async def test_artifacts_have_nothing_to_compare(self, look, index, registry):
        config = b"{}"
        manifest = {
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                "digest": registry.push_blob("team/app", config),
                "size": 2,
            },
            "layers": [],
        }
        index({"linux/arm64": registry.push("team/app", None, manifest)})
        assert (await look("config")).warnings == ()

    async def test_a_schema_1_child_is_compared_too(self, look, index, registry):
        document = {"schemaVersion": 1, "architecture": "amd64", "fsLayers": []}
        index({"linux/arm64": registry.push("team/app", None, document, SCHEMA1)})
        assert codes(await look("config")) == ["mislabelled"]

    @pytest.mark.parametrize(("status", "code"), [(500, "server-error"), (403, "denied")])
    async def test_a_look_that_fails_is_an_error_and_not_silence(self, look, index, image, registry, status, code):
        """A check that could not be made must not pass for one that found nothing."""
        digest = image("linux/arm64")
        index({"linux/arm64": digest})
        registry.script("GET", f"manifests/{digest}", Answer(status), forever=True)
        answer = await look("config")
        assert (answer.status, answer.error.code) == (Status.ERROR, code)
        assert "the look into it is not complete" in answer.error.message
        assert [str(each) for each in answer.platforms] == ["linux/arm64"]

    async def test_damaged_content_is_an_error(self, look, index, registry):
        body = b"no config"
        manifest = {
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": registry.push_blob("team/app", body),
                "size": len(body),
            },
            "layers": [],
        }
        index({"linux/arm64": registry.push("team/app", None, manifest)})
        assert (await look("config")).error.code == "malformed"

    @pytest.mark.req("RG-048")
    async def test_each_child_takes_two_requests(self, look, index, image, registry):
        """Its manifest and its config."""
        index({"linux/amd64": image("linux/amd64"), "linux/arm64": image("linux/arm64")})
        answer = await look("config")
        assert sorted(each.split("/")[-2] for each in registry.requests()) == [
            "blobs",
            "blobs",
            "manifests",
            "manifests",
        ]
        assert answer.requests == 5

    async def test_answers_without_entries_or_sources_stay_as_they_are(self, inspector, ref, registry):
        registry.push_index("team/app", "1")
        empty = await inspector.inspect(ref("team/app:1"))
        missing = await inspector.inspect(ref("team/app:2"))
        for answer in (empty, missing):
            assert await look_deeper(inspector.connection, answer, "elf") is answer


class TestElf:
    async def test_a_program_of_the_right_machine_has_no_warning(self, look, index, image):
        entries = {
            platform: image(platform, layer({"app": elf(platform.split("/")[1])}))
            for platform in ("linux/amd64", "linux/arm64", "linux/s390x")
        }
        index(entries)
        answer = await look("elf")
        assert (answer.status, answer.warnings) == (Status.RESOLVED, ())

    @pytest.mark.req("RG-049", "RG-170")
    async def test_a_program_of_another_machine_is_found(self, look, index, image):
        """Path and machine are named; entry and config may both be wrong about it."""
        index({"linux/arm64": image("linux/arm64", layer({"app": elf("amd64")}))})
        [warning] = (await look("elf")).warnings
        assert warning.code == "wrong-binary"
        assert "/app is for x86-64 (64-bit, little-endian), not for AArch64" in warning.message

    async def test_a_single_image_is_looked_into_as_well(self, look, registry):
        put_image(registry, "team/app", "1", "linux/arm64", [layer({"app": elf("amd64")})], Cmd=["/app"])
        assert codes(await look("elf")) == ["wrong-binary"]

    @pytest.mark.req("RG-049")
    async def test_the_top_layer_is_enough_if_it_has_the_program(self, look, index, image, registry):
        """Searched from the top layer down, so the base below is not transferred."""
        base = layer({"bin/sh": elf("arm64"), "big": bytes(100_000)})
        top = layer({"app": elf("arm64")})
        index({"linux/arm64": image("linux/arm64", base, top)})
        assert codes(await look("elf")) == []
        blobs = registry.requests("GET", "/blobs/")
        assert len(blobs) == 2  # the config and the top layer

    async def test_scripts_and_links_lead_to_the_interpreter(self, look, index, image):
        base = layer(
            {"bin": link("usr/bin"), "usr/bin/python3": link("python3.11"), "usr/bin/python3.11": elf("s390x")}
        )
        top = layer({"app": b"#!/bin/python3 -u\nprint()"})
        index({"linux/amd64": image("linux/amd64", base, top)})
        [warning] = (await look("elf")).warnings
        assert warning.code == "wrong-binary"
        assert "/usr/bin/python3.11 is for S/390" in warning.message

    @pytest.mark.req("RG-049")
    @pytest.mark.parametrize(
        ("platform", "machine", "code"),
        [
            ("linux/amd64", "386", "compatible-binary"),
            ("linux/arm64", "arm", "compatible-binary"),
            ("linux/386", "amd64", "wrong-binary"),
            ("linux/arm", "arm64", "wrong-binary"),
            ("linux/amd64", "arm", "wrong-binary"),
        ],
    )
    async def test_programs_that_kernels_run_as_well_are_no_finding(self, look, index, image, platform, machine, code):
        index({platform: image(platform, layer({"app": elf(machine)}))})
        [warning] = (await look("elf")).warnings
        assert warning.code == code

    @pytest.mark.req("RG-049")
    @pytest.mark.parametrize(
        ("config", "files"),
        [
            ({"Entrypoint": ["/tini", "--"], "Cmd": ["/app"]}, {"tini": "arm64", "app": "amd64"}),
            ({"Entrypoint": ["/sh", "-c", "cd / && exec /app"]}, {"sh": "arm64", "app": "amd64"}),
            ({"Entrypoint": ["/entrypoint.sh"], "Cmd": ["/app"]}, {"sh": "arm64", "app": "amd64"}),
        ],
        ids=["an init", "a shell", "a script"],
    )
    async def test_a_wrapper_does_not_hide_what_it_starts(self, look, index, registry, config, files):
        base = layer({"entrypoint.sh": b'#!/sh\nexec "$@"', **{path: elf(machine) for path, machine in files.items()}})
        index({"linux/arm64": put_image(registry, "team/app", None, "linux/arm64", [base], **config)})
        [warning] = (await look("elf")).warnings
        assert warning.code == "wrong-binary"
        assert "/app is for x86-64" in warning.message

    async def test_where_only_the_wrapper_is_found_this_is_said(self, look, index, registry):
        config = {"Entrypoint": ["/tini", "--", "/srv/app"]}
        body = layer({"tini": elf("arm64")})
        index({"linux/arm64": put_image(registry, "team/app", None, "linux/arm64", [body], **config)})
        [warning] = (await look("elf")).warnings
        assert (warning.code, "only /tini was looked at" in warning.message) == ("binary-unchecked", True)

    @pytest.mark.parametrize("packed", [tar, layer, lambda members: gzip.compress(tar(members)) + gzip.compress(b"")])
    async def test_layers_of_every_packing_are_read(self, look, index, image, packed):
        index({"linux/arm64": image("linux/arm64", packed({"app": elf("amd64")}))})
        assert codes(await look("elf")) == ["wrong-binary"]

    @pytest.mark.req("RG-049")
    @pytest.mark.parametrize(
        ("platform", "content", "why"),
        [
            ("linux/arm64", {"app": b"MZ" + bytes(100)}, "/app is no ELF file"),
            ("linux/arm64", {"other": elf("arm64")}, "/app is in none of its layers"),
            ("linux/arm64", b"\x28\xb5\x2f\xfd" + bytes(50), "zstd"),
            ("linux/arm64", b"no archive" * 100, "no tar archive"),
            ("linux/sparc64", {"app": b"\0asm"}, "programs for linux/sparc64 cannot be checked"),
            ("windows/amd64", {"app": b"MZ"}, "programs for windows/amd64 cannot be checked"),
        ],
    )
    async def test_what_cannot_be_checked_is_said(self, look, index, image, platform, content, why):
        """`binary-unchecked`, which is no finding."""
        body = content if isinstance(content, bytes) else layer(content)
        index({platform: image(platform, body)})
        answer = await look("elf")
        [warning] = [each for each in answer.warnings if each.code != "unknown-architecture"]
        assert (warning.code, why in warning.message) == ("binary-unchecked", True), warning.message
        assert answer.status is Status.RESOLVED

    async def test_nothing_is_read_where_nothing_can_be_checked(self, look, index, image, registry):
        index({"windows/amd64": image("windows/amd64", layer({"app": b"MZ"}))})
        await look("elf")
        assert len(registry.requests("GET", "/blobs/")) == 1  # the config

    async def test_an_image_without_layers_or_program(self, look, index, image):
        index({"linux/arm64": image("linux/arm64")})
        assert "the image has no layers" in (await look("elf")).warnings[0].message
        index({"linux/arm64": image("linux/arm64", layer({"app": b"1"}), command="")}, "2")
        assert "no program to start" in (await look("elf", "team/app:2")).warnings[0].message

    @pytest.mark.req("RG-049")
    async def test_no_more_than_the_limit_is_read_of_a_child(self, look, index, image, monkeypatch):
        """At most 256 MiB compressed per child."""
        assert deep_inspection.LAYERS_LIMIT == 256 * 2**20
        monkeypatch.setattr(deep_inspection, "LAYERS_LIMIT", 3 * deep_inspection.MIB)
        body = tar({"big": bytes(4 * deep_inspection.MIB), "app": elf("amd64")})
        index({"linux/arm64": image("linux/arm64", body)})
        assert "not in the first 3 MiB of its layers" in (await look("elf")).warnings[0].message
        small = layer({"big": bytes(4 * deep_inspection.MIB), "app": elf("amd64")})
        index({"linux/arm64": image("linux/arm64", small)}, "2")
        assert codes(await look("elf", "team/app:2")) == ["wrong-binary"]  # four MiB of zeros are small when compressed

    @pytest.mark.req("RG-049")
    async def test_all_that_is_read_before_the_limit_is_looked_at(self, look, index, image, monkeypatch):
        """What came last before it waits for its turn with what came first."""
        monkeypatch.setattr(deep_inspection, "LAYERS_LIMIT", deep_inspection.MIB)
        monkeypatch.setattr(deep_inspection, "STEP", 8 * deep_inspection.MIB)
        body = tar(
            {"small": bytes(deep_inspection.MIB // 2), "app": elf("amd64"), "big": bytes(4 * deep_inspection.MIB)}
        )
        index({"linux/arm64": image("linux/arm64", body)})
        assert codes(await look("elf")) == ["wrong-binary"]

    async def test_a_layer_that_unpacks_without_end_is_given_up(self, look, index, image, monkeypatch):
        monkeypatch.setattr(deep_inspection, "UNPACKED_LIMIT", 2 * deep_inspection.MIB)
        index(
            {"linux/arm64": image("linux/arm64", layer({"big": bytes(4 * deep_inspection.MIB), "app": elf("amd64")}))}
        )
        assert "unpack to more than 2 MiB" in (await look("elf")).warnings[0].message

    @pytest.mark.req("RG-061")
    async def test_a_layer_that_breaks_off_is_read_again(self, look, index, image, registry):
        """Truncated bodies are tried again, from their beginning."""
        body = layer({"first": elf("arm64"), "app": elf("amd64", 200_000)})
        digest = image("linux/arm64", body)
        index({"linux/arm64": digest})
        registry.script("GET", f"/blobs/{digest_of(body)}", Answer(200, body[:50], drop=True))
        assert codes(await look("elf")) == ["wrong-binary"]

    async def test_a_layer_that_is_gone_is_a_missing_child(self, look, index, image, registry):
        body = layer({"app": elf("arm64")})
        index({"linux/arm64": image("linux/arm64", body)})
        registry.blobs = {key: value for key, value in registry.blobs.items() if value != body}
        [warning] = (await look("elf")).warnings
        assert (warning.code, "a layer of it is not there" in warning.message) == ("child-missing", True)

    @pytest.mark.req("RG-033")
    async def test_a_layer_with_other_bytes_is_an_error(self, look, index, image, registry):
        """Bytes that are not the digest's say nothing."""
        body = layer({"other": elf("arm64")})
        index({"linux/arm64": image("linux/arm64", body)})
        registry.blobs = {
            key: layer({"nothing": b""}) if value == body else value for key, value in registry.blobs.items()
        }
        assert (await look("elf")).error.code == "digest-mismatch"

    @pytest.mark.req("RG-065")
    async def test_a_page_in_place_of_a_layer_is_an_error(self, look, index, image, registry):
        """It says nothing of the program, not even that it cannot be checked."""
        body = layer({"app": elf("arm64")})
        index({"linux/arm64": image("linux/arm64", body)})
        page = Answer(200, b"<!doctype html>" * 1000, {"Content-Type": "text/html"})
        registry.script("GET", f"/blobs/{digest_of(body)}", page, forever=True)
        answer = await look("elf")
        assert (answer.error.code, answer.error.error_class) == ("digest-mismatch", "transient")

    @pytest.mark.req("RG-049")
    async def test_nothing_is_written_to_disk(self, look, index, image, monkeypatch):
        index({"linux/arm64": image("linux/arm64", layer({"app": elf("amd64")}))})

        def refuse(*arguments, **named):
            raise AssertionError(f"something was opened: {arguments}")

        monkeypatch.setattr("builtins.open", refuse)
        monkeypatch.setattr("os.open", refuse)
        monkeypatch.setattr("tempfile.mkstemp", refuse)
        assert codes(await look("elf")) == ["wrong-binary"]

    @pytest.mark.req("RG-035")
    async def test_a_child_costs_its_manifest_its_config_and_layers(self, look, index, image):
        index({"linux/arm64": image("linux/arm64", layer({"x": b"1"}), layer({"y": b"2"}))})
        assert (await look("elf")).requests == 3 + 4  # an index of one entry takes three


@pytest.mark.req("RG-049", "RG-120")
async def test_a_layout_directory_can_be_looked_into(make_inspector, tmp_path):
    """No registry is needed to find the wrong program."""
    body = layer({"app": elf("amd64")})
    config = encode({"os": "linux", "architecture": "arm64", "config": {"Cmd": ["/app"]}})
    folder = tmp_path / "blobs" / "sha256"
    folder.mkdir(parents=True)

    def blob(content):
        digest = digest_of(content)
        (folder / digest[7:]).write_bytes(content)
        return {"digest": digest, "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **blob(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **blob(body)}],
    }
    index = {"manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", **blob(encode(manifest))}]}
    (tmp_path / "index.json").write_bytes(encode(index))
    (tmp_path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    inspector = make_inspector(layouts=True)
    answer = await inspector.inspect(f"oci:{tmp_path}")
    assert codes(await look_deeper(inspector.connection, answer, "elf")) == ["wrong-binary"]
