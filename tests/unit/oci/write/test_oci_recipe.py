"""What users write about an index."""

import pytest

from polyarch.oci.reference import parse
from polyarch.oci.write.assembly import (
    InvalidIndexSpec,
    expand,
    parse_annotations,
    parse_destination,
    parse_source,
    parse_tags,
    read_spec,
)

DIGEST = "sha256:" + "a" * 64


def shown(sources):
    return [(str(each.wanted.platform) if each.wanted else None, each.reference.canonical) for each in sources]


class TestWords:
    @pytest.mark.req("RG-150")
    def test_a_destination_has_a_tag_or_latest(self):
        assert parse_destination("quay.io/team/app").tag == "latest"
        assert parse_destination("quay.io/team/app:1.0").tag == "1.0"

    @pytest.mark.req("RG-150")
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (f"quay.io/team/app@{DIGEST}", "has a digest"),
            ("oci:out:1.0", "is a layout directory"),
            ("quay.io/Team/app", "upper-case"),
        ],
    )
    def test_a_destination_that_cannot_be_written_is_refused(self, text, said):
        """Never a digest."""
        with pytest.raises(InvalidIndexSpec, match=said):
            parse_destination(text)

    @pytest.mark.req("RG-150")
    @pytest.mark.parametrize(
        ("text", "platform", "reference"),
        [
            ("app:1", None, "docker.io/library/app:1"),
            ("linux/arm/v6=app:1", "linux/arm/v6", "docker.io/library/app:1"),
            ("arm64=quay.io/a/b", "linux/arm64", "quay.io/a/b:latest"),
            (f"s390x=quay.io/a/b@{DIGEST}", "linux/s390x", f"quay.io/a/b@{DIGEST}"),
            ("linux/arm64=oci:out:1", "linux/arm64", "oci:out:1"),
            ("oci:folder=x:1", None, "oci:folder=x:1"),
        ],
    )
    def test_a_source_may_have_a_platform(self, text, platform, reference):
        """A reference, a layout directory, or PLATFORM=REFERENCE."""
        assert shown([parse_source(text)]) == [(platform, reference)]

    @pytest.mark.parametrize("text", ["linux=app", "=app", "linux/arm64=", "linux/arm64=App", "a b"])
    def test_a_source_that_is_none_is_named(self, text):
        with pytest.raises(InvalidIndexSpec, match="the source"):
            parse_source(text)

    @pytest.mark.req("RG-150")
    def test_tags_are_tags_of_the_destination(self):
        """--tag T, repeated; the destination's own is no further one."""
        assert parse_tags(["1", "1.0", "1", "2"], parse("r.example/app:1.0")) == ("1", "2")

    @pytest.mark.parametrize("text", ["", "a b", "team/app:1", f"@{DIGEST}", "-x", "x" * 129])
    def test_a_tag_that_is_none_is_refused(self, text):
        with pytest.raises(InvalidIndexSpec):
            parse_tags([text], parse("r.example/app:1.0"))

    def test_annotations_are_pairs(self):
        assert parse_annotations(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}

    @pytest.mark.parametrize("texts", [["a"], ["=b"], ["a=1", "a=2"]])
    def test_annotations_that_are_none_or_twice_are_refused(self, texts):
        with pytest.raises(InvalidIndexSpec):
            parse_annotations(texts)


class TestTemplate:
    @pytest.mark.req("RG-156")
    def test_placeholders_are_replaced_for_each_platform(self):
        """OS, ARCH, VARIANT (empty if none)."""
        sources = expand("r.example/app:1-OS-ARCH-VARIANT", ["linux/amd64,linux/arm/v6", "linux/arm64/v8"])
        assert [each.reference.tag for each in sources] == ["1-linux-amd64-", "1-linux-arm-v6", "1-linux-arm64-v8"]
        assert [each.wanted.text for each in sources] == ["linux/amd64", "linux/arm/v6", "linux/arm64/v8"]

    def test_they_may_stand_in_the_repository_and_more_than_once(self):
        [source] = expand("r.example/OS/app-ARCH:ARCH", ["arm64"])
        assert source.reference.canonical == "r.example/linux/app-arm64:arm64"

    def test_what_was_put_in_is_not_replaced_again(self):
        [source] = expand("r.example/app:ARCHOS", ["linux/arm64"])
        assert source.reference.tag == "arm64linux"

    @pytest.mark.parametrize(
        ("template", "platforms", "said"),
        [
            ("r.example/app:1", ["linux/amd64"], "none of OS, ARCH and VARIANT"),
            ("r.example/app-ARCH", ["linux"], "--platforms"),
            ("r.example/app-ARCH", ["linux/amd64,"], "--platforms"),
            ("r.example/App-ARCH", ["linux/amd64"], "upper-case"),
        ],
    )
    def test_a_template_that_names_nothing_is_refused(self, template, platforms, said):
        with pytest.raises(InvalidIndexSpec, match=said):
            expand(template, platforms)


SPEC = {
    "image": "r.example/app:1.0",
    "tags": ["latest", "1.0", "1"],
    "manifests": [
        {"image": "r.example/app:amd64"},
        {"image": "r.example/app:pi", "platform": {"os": "linux", "architecture": "arm", "variant": "v6"}},
        {
            "image": "r.example/app:win",
            "platform": {
                "os": "windows",
                "architecture": "amd64",
                "os.version": "10.0.1",
                "os.features": ["win32k"],
            },
        },
    ],
    "annotations": {"a": "b"},
}


class TestSpec:
    @pytest.mark.req("RG-156")
    def test_a_file_says_all_of_it(self):
        recipe = read_spec(SPEC, origin="app.yaml")
        assert recipe.destination.canonical == "r.example/app:1.0"
        assert (recipe.tags, recipe.annotations) == (("latest", "1"), {"a": "b"})
        assert shown(recipe.sources) == [
            (None, "r.example/app:amd64"),
            ("linux/arm/v6", "r.example/app:pi"),
            ("windows(10.0.1)/amd64", "r.example/app:win"),
        ]
        assert recipe.sources[2].wanted.platform.os_features == ("win32k",)

    def test_a_variant_that_is_not_written_takes_none_away(self):
        spec = {"image": "a", "manifests": [{"image": "b", "platform": {"os": "linux", "architecture": "arm"}}]}
        [source] = read_spec(spec, origin="x").sources
        assert source.wanted.variant == ""

    @pytest.mark.req("RG-156")
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"more": 1}, "unknown member 'more'"),
            ({"image": None}, "'image' must be a text"),
            ({"image": f"app@{DIGEST}"}, "has a digest"),
            ({"manifests": []}, "'manifests' must be a list"),
            ({"manifests": [{"image": "a", "size": 1}]}, r"manifests\[0\]: unknown member 'size'"),
            ({"manifests": ["a"]}, r"manifests\[0\]: expected a mapping"),
            ({"manifests": [{"image": "A"}]}, r"manifests\[0\]: .*upper-case"),
            ({"manifests": [{"image": "a", "platform": {"os": "linux"}}]}, "'architecture' must be a text"),
            ({"manifests": [{"image": "a", "platform": {"features": []}}]}, "unknown member 'features'"),
            ({"tags": [1.0]}, "write numbers in quotes"),
            ({"tags": ["a/b"]}, "is no tag"),
            ({"annotations": {"a": 1}}, "from text to text"),
            ({"annotations": []}, None),
        ],
    )
    def test_what_is_not_understood_is_a_usage_error_with_its_place(self, change, said):
        """Unknown members are usage errors."""
        spec = {**SPEC, **change}
        if said is None:
            assert read_spec(spec, origin="app.yaml").annotations == {}
            return
        with pytest.raises(InvalidIndexSpec, match=said):
            read_spec(spec, origin="app.yaml")

    @pytest.mark.parametrize("data", [None, [], "text", 1])
    def test_a_file_of_another_shape_is_refused(self, data):
        with pytest.raises(InvalidIndexSpec, match=r"^app.yaml: expected a mapping"):
            read_spec(data, origin="app.yaml")
