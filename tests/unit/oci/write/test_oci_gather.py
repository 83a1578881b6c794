"""From sources to children, against scripted registries."""

import pytest
from image_parts import put_attestation, put_image
from scripted_registry import OCI_INDEX, Answer, digest_of, encode

from polyarch.oci.documents import DOCKER_SCHEMA1, DOCKER_SCHEMA2
from polyarch.oci.mirror_files import Mirror, RegistryEntry
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import InvalidIndex, assemble, parse_requested_platform, parse_source
from polyarch.oci.write.children import ChildCollector

DOCKER = (
    DOCKER_SCHEMA2,
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)


@pytest.fixture
def notices():
    return []


@pytest.fixture
def gather(inspector, registry, notices):
    """``await gather("team/app:1", "linux/arm64=team/b:1")``: what these images of the registry have."""

    async def gather(*texts, **options):
        sources = [
            parse_source(f"{platform}{equals}{registry.host}/{name}")
            for platform, equals, name in (text.rpartition("=") for text in texts)
        ]
        gathering = ChildCollector(inspector.connection, notice=notices.append, **options)
        return await gathering.gather(sources)

    return gather


def platforms(gathered):
    return [str(piece.child.platform) for piece in gathered.pieces if not piece.child.is_attestation]


class TestImages:
    @pytest.mark.req("RG-151")
    async def test_an_image_has_the_platform_of_its_config(self, gather, registry):
        """Variant, OS version and features included; the size is the true number of bytes."""
        digest = put_image(registry, "team/app", "pi", "linux/arm/v6")
        put_image(registry, "team/app", "win", "windows/amd64", os_version="10.0.17763.1")
        gathered = await gather("team/app:pi", "team/app:win")
        assert platforms(gathered) == ["linux/arm/v6", "windows(10.0.17763.1)/amd64"]
        child = gathered.pieces[0].child
        body = registry.manifests["team/app", digest][0]
        assert (child.digest, child.size, gathered.pieces[0].manifest) == (digest, len(body), body)
        assert child.source == f"{registry.host}/team/app:pi"

    @pytest.mark.req("RG-151", "RG-152")
    async def test_a_written_platform_must_agree_and_may_refine(self, gather, registry):
        put_image(registry, "team/app", "1", "linux/amd64")
        assert platforms(await gather("linux/amd64/v3=team/app:1")) == ["linux/amd64/v3"]
        with pytest.raises(InvalidIndex, match="is linux/amd64, not linux/arm64"):
            await gather("linux/arm64=team/app:1")

    @pytest.mark.req("RG-152")
    async def test_a_written_platform_stands_in_for_a_silent_config(self, gather, registry):
        """A child without a platform and none given."""
        registry.push_image("team/app", "1", platform=None, os="linux")
        assert platforms(await gather("linux/arm64=team/app:1")) == ["linux/arm64"]
        [piece] = (await gather("team/app:1")).pieces
        with pytest.raises(InvalidIndex, match="does not say its platform"):
            assemble([piece.child])

    async def test_a_schema_1_image_cannot_be_in_an_index(self, gather, registry):
        document = {"schemaVersion": 1, "architecture": "amd64", "fsLayers": []}
        registry.push("team/app", "1", document, DOCKER_SCHEMA1)
        [piece] = (await gather("team/app:1")).pieces
        with pytest.raises(InvalidIndex):
            assemble([piece.child])

    @pytest.mark.req("RG-151")
    async def test_platforms_can_be_filtered(self, gather, registry, notices):
        """--platform filters, and what is left out is said."""
        put_image(registry, "team/app", "1", "linux/amd64")
        put_image(registry, "team/app", "2", "linux/arm/v6")
        only = parse_requested_platform(["linux/arm,s390x"])
        assert platforms(await gather("team/app:1", "team/app:2", only=only)) == ["linux/arm/v6"]
        assert any("team/app:1 is left out" in notice for notice in notices)


class TestIndexes:
    @pytest.fixture
    def children(self, registry):
        """Images of an index, by platform."""
        return {
            platform: put_image(registry, "team/app", None, platform, salt=platform)
            for platform in ("linux/amd64", "linux/arm64", "linux/arm/v6", "linux/arm/v7")
        }

    @pytest.fixture
    def push(self, registry, children):
        def push(tag, *entries, **more):
            found = [registry.entry(each, children[each]) if isinstance(each, str) else each for each in entries]
            return registry.push_index("team/app", tag, entries=found, **more)

        return push

    @pytest.mark.req("RG-042", "RG-151")
    async def test_an_index_is_flattened_to_its_runnable_entries(self, gather, push, registry, children):
        """Nested ones too, never the index itself; entries without platform are asked."""
        inner = push(None, "linux/arm64")
        nested = {"mediaType": OCI_INDEX, "digest": inner, "size": 1}
        unstated = registry.entry(None, children["linux/arm/v6"])
        push("1", "linux/amd64", nested, unstated)
        gathered = await gather("team/app:1")
        assert platforms(gathered) == ["linux/amd64", "linux/arm64", "linux/arm/v6"]
        assert [piece.child.size for piece in gathered.pieces] == [
            len(registry.manifests["team/app", piece.child.digest][0]) for piece in gathered.pieces
        ]

    @pytest.mark.req("RG-153")
    async def test_sizes_are_counted_and_not_believed(self, gather, push, registry, children):
        """Child sizes are the true byte counts."""
        push("1", {**registry.entry("linux/amd64", children["linux/amd64"]), "size": 12345})
        [piece] = (await gather("team/app:1")).pieces
        assert piece.child.size == len(piece.manifest) != 12345

    @pytest.mark.req("RG-151")
    async def test_a_written_platform_selects_an_entry(self, gather, push):
        push("1", "linux/amd64", "linux/arm64", "linux/arm/v6", "linux/arm/v7")
        assert platforms(await gather("arm64=team/app:1")) == ["linux/arm64"]
        assert platforms(await gather("linux/arm/v6=team/app:1")) == ["linux/arm/v6"]
        assert platforms(await gather("linux/arm=team/app:1")) == ["linux/arm/v7"]

    async def test_a_selection_that_is_none_or_several_is_refused(self, gather, push):
        push("1", "linux/amd64")
        with pytest.raises(InvalidIndex, match="has no entry for linux/s390x: it has linux/amd64"):
            await gather("linux/s390x=team/app:1")
        push("2", "linux/arm/v6", {"mediaType": "x", "digest": "y"})
        assert platforms(await gather("linux/arm=team/app:2")) == ["linux/arm/v6"]

    async def test_platforms_can_be_filtered(self, gather, push):
        push("1", "linux/amd64", "linux/arm64", "linux/arm/v6")
        gathered = await gather("team/app:1", only=parse_requested_platform(["linux/arm64", "linux/arm/v6"]))
        assert platforms(gathered) == ["linux/arm64", "linux/arm/v6"]

    @pytest.mark.req("RG-152")
    async def test_a_platform_that_an_index_has_twice_is_refused(self, gather, push, registry, children):
        """Readers take the first; who writes an index must not choose silently."""
        other = put_image(registry, "team/app", None, "linux/amd64", salt="other")
        push("1", "linux/amd64", registry.entry("linux/amd64", other))
        gathered = await gather("team/app:1")
        with pytest.raises(InvalidIndex, match="linux/amd64 is there twice"):
            assemble([piece.child for piece in gathered.pieces])

    @pytest.mark.req("RG-044")
    @pytest.mark.parametrize("source", ["team/app:1", "linux/amd64=team/app:1"])
    async def test_images_in_two_compressions_are_both_taken(self, gather, push, registry, children, source):
        other = put_image(registry, "team/app", None, "linux/amd64", salt="other")
        zstd = {"io.github.containers.compression.zstd": "true"}
        push("1", registry.entry("linux/amd64", other, annotations=zstd), "linux/amd64")
        gathered = await gather(source)
        made = assemble([piece.child for piece in gathered.pieces])
        assert [(each.digest == other, each.annotations) for each in made.children] == [(False, {}), (True, zstd)]

    async def test_annotations_of_entries_come_along(self, gather, push, registry, children):
        push("1", registry.entry("linux/amd64", children["linux/amd64"], annotations={"a": "b", "bad": 1}))
        [piece] = (await gather("team/app:1")).pieces
        assert piece.child.annotations == {"a": "b"}

    @pytest.mark.req("RG-154")
    async def test_attestations_are_known_with_their_subjects(self, gather, push, registry, children):
        """Their manifests are read only if they are to be kept."""
        attestation = put_attestation(registry, "team/app", children["linux/amd64"])
        push("1", "linux/amd64", "linux/arm64", attestation)
        for choice, read in (("drop", 0), ("keep", 1)):
            registry.seen.clear()
            gathered = await gather("team/app:1", attestations=choice)
            [piece] = [each for each in gathered.pieces if each.child.is_attestation]
            assert (piece.child.subject, piece.child.raw) == (children["linux/amd64"], attestation)
            assert len(registry.requests("GET", attestation["digest"])) == read
        selected = await gather("linux/arm64=team/app:1", attestations="keep")
        assert [each for each in selected.pieces if each.child.is_attestation] == []

    async def test_skipped_entries_are_left_out(self, gather, push, registry):
        unknown = {**registry.entry(None), "platform": {"os": "unknown", "architecture": "unknown"}}
        push("1", "linux/amd64", unknown)
        assert platforms(await gather("team/app:1")) == ["linux/amd64"]

    @pytest.mark.req("RG-152")
    async def test_an_index_of_which_a_child_is_missing_is_refused(self, gather, push, registry, children, notices):
        """A missing source; --ignore-missing goes on with the others."""
        push("1", "linux/amd64", "linux/arm64")
        del registry.manifests["team/app", children["linux/arm64"]]
        with pytest.raises(InvalidIndex, match=r"linux/arm64 of .*team/app:1 is missing"):
            await gather("team/app:1")
        assert platforms(await gather("team/app:1", ignore_missing=True)) == ["linux/amd64"]
        assert any("linux/arm64" in notice for notice in notices)


class TestFaults:
    @pytest.mark.req("RG-152")
    async def test_a_missing_source_is_refused_unless_it_may_be(self, gather, registry, notices):
        put_image(registry, "team/app", "1", "linux/amd64")
        with pytest.raises(InvalidIndex, match=r"a source is missing: .*team/app:2"):
            await gather("team/app:1", "team/app:2")
        gathered = await gather("team/app:1", "team/app:2", ignore_missing=True)
        assert (platforms(gathered), gathered.missing) == (["linux/amd64"], (f"{registry.host}/team/app:2",))
        assert any("team/app:2 is left out" in notice for notice in notices)

    @pytest.mark.req("RG-157")
    async def test_a_registry_that_fails_is_no_missing_source(self, gather, registry):
        """Exit 3, also with --ignore-missing: an index without an image that exists would mislead."""
        registry.script("GET", "manifests/1", Answer(500), forever=True)
        with pytest.raises(Failure) as caught:
            await gather("team/app:1", ignore_missing=True)
        assert caught.value.error.code == "server-error"
        assert caught.value.error.message.startswith(f"{registry.host}/team/app:1: ")

    async def test_the_first_of_several_faults_is_told(self, gather, registry):
        registry.script("GET", "one/manifests", Answer(403, delay=0.05), forever=True)
        registry.script("GET", "two/manifests", Answer(404), forever=True)
        with pytest.raises(Failure) as caught:
            await gather("team/one:1", "team/two:1")
        assert caught.value.error.code == "denied"

    async def test_a_source_that_cannot_be_read_names_itself(self, gather, registry):
        registry.push("team/app", "1", b"{}")
        with pytest.raises(Failure, match="team/app:1"):
            await gather("team/app:1")

    @pytest.mark.req("RG-152")
    async def test_docker_images_stay_docker_images(self, gather, registry):
        """Bytes are never converted."""
        put_image(registry, "team/app", "1", "linux/amd64", media=DOCKER)
        [piece] = (await gather("team/app:1")).pieces
        assert piece.child.media_type == DOCKER_SCHEMA2


@pytest.mark.req("RG-064", "RG-092")
class TestMirrors:
    """Sources are read where every reader reads them."""

    @pytest.fixture
    def mirrored(self, registry, start_registry, make_inspector):
        async def start():
            mirror = await start_registry()
            rule = RegistryEntry(
                prefix=f"{registry.host}/team",
                location=f"{registry.host}/team",
                mirrors=(Mirror(location=f"{mirror.host}/cache"),),
            )
            gathering = ChildCollector(make_inspector(configuration=Configuration(registries=(rule,))).connection)
            return mirror, lambda: gathering.gather([parse_source(f"{registry.host}/team/app:1")])

        return start

    async def test_a_mirror_is_asked_first(self, mirrored, registry):
        mirror, gather = await mirrored()
        put_image(mirror, "cache/app", "1", "linux/arm64")
        [piece] = (await gather()).pieces
        assert (piece.contents.name, registry.seen) == (mirror.host, [])
        assert piece.child.source == f"{registry.host}/team/app:1"

    async def test_the_registry_itself_is_asked_next(self, mirrored, registry):
        mirror, gather = await mirrored()
        put_image(registry, "team/app", "1", "linux/arm64")
        [piece] = (await gather()).pieces
        assert (piece.contents.name, len(mirror.seen)) == (registry.host, 1)

    async def test_a_source_that_nobody_has_names_all_who_were_asked(self, mirrored, registry):
        mirror, gather = await mirrored()
        registry.script("GET", "manifests", Answer(500), forever=True)
        with pytest.raises(Failure) as caught:
            await gather()
        assert [mirror.host in caught.value.error.attempts[0], registry.host in caught.value.error.attempts[1]] == [
            True,
            True,
        ]


@pytest.mark.req("RG-120", "RG-150")
async def test_a_layout_directory_is_a_source(inspector, tmp_path):
    folder = tmp_path / "blobs" / "sha256"
    folder.mkdir(parents=True)
    config = encode({"os": "linux", "architecture": "riscv64"})
    manifest = encode(
        {
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config),
                "size": len(config),
            },
            "layers": [],
        }
    )
    for body in (config, manifest):
        (folder / digest_of(body)[7:]).write_bytes(body)
    (tmp_path / "index.json").write_bytes(encode({"manifests": [{"digest": digest_of(manifest)}]}))
    (tmp_path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    [piece] = (await ChildCollector(inspector.connection).gather([parse_source(f"oci:{tmp_path}")])).pieces
    assert (str(piece.child.platform), piece.child.source) == ("linux/riscv64", f"oci:{tmp_path}")
