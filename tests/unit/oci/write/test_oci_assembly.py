"""Assembling indexes: the bytes, and what is refused."""

import json
import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.oci.documents import DOCKER_LIST, DOCKER_SCHEMA1, DOCKER_SCHEMA2, OCI_INDEX, OCI_MANIFEST, digest_of
from polyarch.oci.image.parsing import read_index
from polyarch.oci.write.assembly import (
    SUBJECT,
    Child,
    InvalidIndex,
    RequestedPlatform,
    assemble,
    check_required,
    parse_requested_platform,
)
from polyarch.platforms import InvalidPlatform, Platform

GOLDEN = "sha256:98739a7c564c4fa8e889cd79bc52cac8532c6138934441db4f1862eb200411cb"


def sha(letter):
    return f"sha256:{letter * 64}"


def child(platform, letter="a", size=501, **more):
    parsed = Platform.parse(platform) if isinstance(platform, str) else platform
    return Child(more.pop("media_type", OCI_MANIFEST), sha(letter), size, parsed, f"r.example/{letter}", **more)


def attestation(letter, subject, **more):
    raw = {
        "mediaType": OCI_MANIFEST,
        "digest": sha(letter),
        "size": 7,
        "annotations": {SUBJECT: sha(subject), "vnd.docker.reference.type": "attestation-manifest"},
        "platform": {"architecture": "unknown", "os": "unknown"},
        **more,
    }
    return Child(OCI_MANIFEST, sha(letter), 7, None, "r.example/index", raw["annotations"], sha(subject), raw)


def document(index):
    return json.loads(index.body)


class TestBytes:
    @pytest.mark.req("RG-153")
    def test_the_golden_index(self):
        """Digests a×64 (501 bytes, linux/amd64) and b×64 (502 bytes, linux/arm64)."""
        index = assemble([child("linux/amd64"), child("linux/arm64", "b", 502)])
        assert (len(index.body), index.digest, index.media_type) == (491, GOLDEN, OCI_INDEX)
        assert digest_of(index.body) == GOLDEN
        assert index.body.startswith(
            b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{'
        )

    @pytest.mark.req("RG-153", "RG-170")
    def test_any_order_of_children_gives_the_same_bytes(self):
        children = [
            child("linux/amd64"),
            child("linux/arm64", "b", 502),
            child("linux/arm/v6", "c"),
            attestation("d", "b"),
        ]
        bodies = {assemble(order, attestations="keep").body for order in permutations(children)}
        assert len(bodies) == 1

    @pytest.mark.req("RG-153")
    def test_members_stand_in_the_order_of_the_specification(self):
        """schemaVersion, mediaType, manifests, annotations; platform members only if set; no newline."""
        platform = Platform.of("windows", "amd64", "v2", "10.0.17763.1", ["win32k", "abc"])
        index = assemble([child(platform, annotations={"z": "1", "a": "ü"})], annotations={"z": "1", "b": "2"})
        assert index.body.decode() == (
            '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":'
            f'"application/vnd.oci.image.manifest.v1+json","digest":"{sha("a")}","size":501,"platform":{{"architecture"'
            ':"amd64","os":"windows","os.version":"10.0.17763.1","os.features":["abc","win32k"],"variant":"v2"},'
            '"annotations":{"a":"ü","z":"1"}}],"annotations":{"b":"2","z":"1"}}'
        )

    @pytest.mark.req("RG-020", "RG-153")
    def test_platforms_are_written_normalised(self):
        """arm64/v8 is arm64, arm is arm/v7."""
        index = assemble([child(Platform.of("linux", "aarch64", "v8")), child(Platform.of("Linux", "arm"), "b")])
        assert [each["platform"] for each in document(index)["manifests"]] == [
            {"architecture": "arm", "os": "linux", "variant": "v7"},
            {"architecture": "arm64", "os": "linux"},
        ]

    @pytest.mark.req("RG-153")
    def test_children_are_sorted_by_platform(self):
        """Os, architecture, variant, OS version."""
        wanted = [
            "linux/amd64",
            "linux/amd64/v3",
            "linux/arm/v6",
            "linux/arm/v7",
            "windows(10.0.17763.1)/amd64",
            "windows(10.0.20348.1)/amd64",
        ]
        children = [child(platform, "abcdef"[at]) for at, platform in enumerate(wanted)]
        random.Random(7).shuffle(children)
        assert [str(each.platform) for each in assemble(children).children] == wanted

    @pytest.mark.req("RG-150")
    def test_the_order_can_be_kept(self):
        """--keep-order."""
        children = [child("linux/s390x", "b"), child("linux/amd64")]
        assert assemble(children, keep_order=True).children == tuple(children)

    def test_a_docker_list_has_no_annotations_at_all(self):
        children = [child("linux/amd64", media_type=DOCKER_SCHEMA2, annotations={"a": "b"})]
        index = assemble(children)
        assert index.media_type == document(index)["mediaType"] == DOCKER_LIST
        assert "annotations" not in document(index)["manifests"][0]

    def test_annotations_of_entries_are_kept(self):
        """What builders say of an image is not lost when its index is made again; of two values the lesser counts,
        whichever came first."""
        one = child("linux/amd64", annotations={"a": "1", "b": "2"})
        two = child("linux/amd64", annotations={"a": "0", "c": "3"})
        for order in ([one, two], [two, one]):
            assert document(assemble(order))["manifests"][0]["annotations"] == {"a": "0", "b": "2", "c": "3"}

    @pytest.mark.req("RG-040", "RG-153")
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["linux", "windows"]),
                st.sampled_from(["amd64", "arm64", "arm", "s390x"]),
                st.sampled_from(["", "v6", "v7", "v9"]),
            ),
            min_size=1,
            max_size=12,
            unique=True,
        ),
        st.integers(),
    )
    def test_what_is_written_reads_back(self, triples, seed):
        """Our own reader finds the platforms that went in, in any order the same bytes."""
        platforms = list({Platform.of(*each) for each in triples})
        children = [Child(OCI_MANIFEST, digest_of(str(each).encode()), 9, each) for each in platforms]
        index = assemble(children)
        random.Random(seed).shuffle(children)
        assert assemble(children).body == index.body
        assert {entry.platform for entry in read_index(index.body).entries} == set(platforms)


class TestAttestations:
    CHILDREN = (child("linux/arm64", "b"), child("linux/amd64", "a"))
    ATTESTATIONS = (attestation("f", "b"), attestation("e", "a"), attestation("d", "9"))

    @pytest.mark.req("RG-154")
    def test_they_are_dropped_and_told_by_default(self):
        index = assemble([*self.CHILDREN, *self.ATTESTATIONS])
        assert [each.digest for each in index.children] == [sha("a"), sha("b")]
        assert [each.digest for each in index.dropped] == [sha("f"), sha("e"), sha("d")]

    @pytest.mark.req("RG-154")
    def test_kept_ones_follow_all_images_in_the_order_of_their_subjects(self):
        """Those whose subject is a child of the new index, unchanged."""
        index = assemble([*self.ATTESTATIONS, *self.CHILDREN], attestations="keep")
        assert [each.digest for each in index.children] == [sha("a"), sha("b"), sha("e"), sha("f")]
        assert [each.digest for each in index.dropped] == [sha("d")]
        assert document(index)["manifests"][2] == self.ATTESTATIONS[1].raw

    @pytest.mark.req("RG-154")
    def test_members_that_we_do_not_know_are_carried_over(self):
        """Unchanged."""
        carried = attestation("e", "a", artifactType="x/y", data="e30=")
        index = assemble([*self.CHILDREN, carried], attestations="keep")
        assert document(index)["manifests"][2] == carried.raw

    def test_an_attestation_of_an_image_that_is_left_out_is_left_out(self):
        index = assemble([self.CHILDREN[0], *self.ATTESTATIONS], attestations="keep")
        assert [each.digest for each in index.children] == [sha("b"), sha("f")]

    def test_one_without_a_subject_is_left_out(self):
        lone = Child(OCI_MANIFEST, sha("e"), 7, None, "r.example/index", {}, "", {"digest": sha("e")})
        index = assemble([*self.CHILDREN, lone], attestations="keep")
        assert index.dropped == (lone,)

    def test_the_same_one_from_two_sources_is_carried_once(self):
        index = assemble([*self.CHILDREN, attestation("e", "a"), attestation("e", "a")], attestations="keep")
        assert [each.digest for each in index.children].count(sha("e")) == 1


class TestRefused:
    """Nothing is pushed, and the sources to blame are named."""

    def test_one_platform_from_different_digests(self):
        with pytest.raises(
            InvalidIndex, match=r"linux/amd64 is there twice: r.example/a \(sha256:a+\) and r.example/b"
        ):
            assemble([child("linux/amd64"), child("linux/amd64", "b")])

    @pytest.mark.req("RG-021")
    def test_one_platform_under_two_names(self):
        """arm64 is arm64/v8, arm is arm/v7."""
        with pytest.raises(InvalidIndex, match="linux/arm64 is there twice"):
            assemble([child(Platform.of("linux", "arm64", "v8")), child("linux/arm64", "b")])

    def test_one_platform_twice_from_one_digest_is_fine(self):
        assert len(assemble([child("linux/amd64"), child("linux/amd64")]).children) == 1

    def test_children_of_both_families(self):
        with pytest.raises(InvalidIndex, match=r"r\.example/a is OCI and r\.example/b is Docker"):
            assemble([child("linux/amd64"), child("linux/arm64", "b", media_type=DOCKER_SCHEMA2)])

    @pytest.mark.req("RG-152")
    @pytest.mark.parametrize(("kind", "media_type"), [("docker", OCI_MANIFEST), ("oci", DOCKER_SCHEMA2)])
    def test_a_type_of_the_other_family(self, kind, media_type):
        """Bytes are never converted."""
        with pytest.raises(InvalidIndex, match=f"--type {kind} wants another"):
            assemble([child("linux/amd64", media_type=media_type)], kind=kind)

    @pytest.mark.parametrize(
        ("kind", "media_type", "result"), [("oci", OCI_MANIFEST, OCI_INDEX), ("docker", DOCKER_SCHEMA2, DOCKER_LIST)]
    )
    def test_a_type_of_its_own_family(self, kind, media_type, result):
        assert assemble([child("linux/amd64", media_type=media_type)], kind=kind).media_type == result

    def test_a_type_that_no_index_can_have(self):
        with pytest.raises(InvalidIndex, match=r"manifest\.v1"):
            assemble([child("linux/amd64", media_type=DOCKER_SCHEMA1)])

    def test_a_child_without_a_platform(self):
        with pytest.raises(InvalidIndex, match=r"write PLATFORM=r\.example/a"):
            assemble([child(None)])

    @pytest.mark.parametrize("children", [[], [attestation("e", "a")]])
    def test_no_child_left(self, children):
        with pytest.raises(InvalidIndex, match="no image is left"):
            assemble(children, attestations="keep")

    def test_annotations_on_a_docker_list(self):
        with pytest.raises(InvalidIndex, match="no annotations"):
            assemble([child("linux/amd64", media_type=DOCKER_SCHEMA2)], annotations={"a": "b"})

    def test_a_required_platform_that_is_missing(self):
        children = [child("linux/amd64"), attestation("e", "a")]
        with pytest.raises(InvalidIndex, match=r"would lack linux/arm64, linux/s390x: it has linux/amd64"):
            check_required(children, parse_requested_platform(["linux/amd64,linux/arm64", "linux/s390x"]))
        check_required(children, parse_requested_platform(["amd64"]))


class TestWanted:
    @pytest.mark.req("RG-150")
    @pytest.mark.parametrize(
        ("text", "platform", "matches"),
        [
            ("linux/arm", "linux/arm/v6", True),
            ("linux/arm", "linux/arm/v7", True),
            ("linux/arm/v6", "linux/arm/v7", False),
            ("armhf", "linux/arm/v6", False),
            ("armhf", "linux/arm/v7", True),
            ("linux/arm64", "linux/arm64/v9", True),
            ("linux/arm64/v8", "linux/arm64", True),
            ("linux/arm64/v8", "linux/arm64/v9", False),
            ("linux/amd64", "windows/amd64", False),
            ("windows/amd64", "windows(10.0.1)/amd64", True),
            ("windows(10.0.1)/amd64", "windows(10.0.2)/amd64", False),
        ],
    )
    def test_what_is_not_written_matches_anything(self, text, platform, matches):
        """--platform, --require and PLATFORM= read alike."""
        assert RequestedPlatform.parse(text).matches(Platform.parse(platform)) is matches

    @pytest.mark.req("RG-151")
    @pytest.mark.parametrize(
        ("text", "config", "result"),
        [
            ("linux/arm/v6", "linux/arm/v7", "linux/arm/v6"),
            ("linux/arm", "linux/arm/v6", "linux/arm/v6"),
            ("linux/arm64", "linux/arm64/v9", "linux/arm64/v9"),
            ("linux/amd64/v3", "linux/amd64", "linux/amd64/v3"),
            ("windows(10.0.1)/amd64", "windows/amd64", "windows(10.0.1)/amd64"),
        ],
    )
    def test_a_platform_refines_what_the_config_says(self, text, config, result):
        """It may refine the variant; a variant that is not written takes none away."""
        assert str(RequestedPlatform.parse(text).refine(Platform.parse(config), "source")) == result

    @pytest.mark.req("RG-152")
    @pytest.mark.parametrize(
        ("text", "config"),
        [
            ("linux/arm64", "linux/amd64"),
            ("windows/amd64", "linux/amd64"),
            ("windows(10.0.1)/amd64", "windows(10.0.2)/amd64"),
        ],
    )
    def test_a_platform_that_contradicts_the_config_is_refused(self, text, config):
        with pytest.raises(InvalidIndex, match=r"r.example/a is .*, not "):
            RequestedPlatform.parse(text).refine(Platform.parse(config), "r.example/a")

    def test_a_platform_that_is_none_is_a_usage_error(self):
        with pytest.raises(InvalidPlatform):
            parse_requested_platform(["linux/amd64,,"])
