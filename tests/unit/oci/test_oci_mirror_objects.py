"""OpenShift's mirror objects, given as data."""

from typing import Any

import pytest

from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.pull_sources import Blocked, Configuration, sources
from polyarch.oci.reference import parse

DIGEST = f"sha256:{'a' * 64}"
FIELDS = {
    "ImageDigestMirrorSet": "imageDigestMirrors",
    "ImageTagMirrorSet": "imageTagMirrors",
    "ImageContentSourcePolicy": "repositoryDigestMirrors",
}


def mirror_object(kind: str, source: str, *mirrors: str, policy: str = "", name: str = "m") -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source, "mirrors": list(mirrors)}
    if policy:
        entry["mirrorSourcePolicy"] = policy
    return {"kind": kind, "metadata": {"name": name}, "spec": {FIELDS[kind]: [entry]}}


def hosts(image: str, *objects: dict[str, Any]) -> list[str]:
    return [f"{each.host}/{each.repository}" for each in sources(parse(image), Configuration.from_objects(objects))]


@pytest.mark.req("RG-095")
@pytest.mark.parametrize(
    ("kind", "image", "expected"),
    [
        pytest.param(
            "ImageDigestMirrorSet", f"quay.io/a@{DIGEST}", ["m.example/q/a", "quay.io/a"], id="IDMS with digest"
        ),
        pytest.param("ImageDigestMirrorSet", "quay.io/a:1", ["quay.io/a"], id="IDMS with tag"),
        pytest.param(
            "ImageContentSourcePolicy",
            f"quay.io/a@{DIGEST}",
            ["m.example/q/a", "quay.io/a"],
            id="ICSP with digest",
        ),
        pytest.param("ImageContentSourcePolicy", "quay.io/a:1", ["quay.io/a"], id="ICSP with tag"),
        pytest.param("ImageTagMirrorSet", "quay.io/a:1", ["m.example/q/a", "quay.io/a"], id="ITMS with tag"),
        pytest.param("ImageTagMirrorSet", f"quay.io/a:1@{DIGEST}", ["quay.io/a"], id="ITMS with digest"),
    ],
)
def test_each_kind_mirrors_what_it_is_for(kind: str, image: str, expected: list[str]) -> None:
    assert hosts(image, mirror_object(kind, "quay.io", "m.example/q")) == expected


@pytest.mark.req("RG-095")
def test_several_objects_for_one_source_merge_in_order_without_repetition() -> None:
    objects = [
        mirror_object("ImageDigestMirrorSet", "quay.io", "one.example", "two.example"),
        mirror_object("ImageContentSourcePolicy", "quay.io", "two.example", "three.example"),
        mirror_object("ImageTagMirrorSet", "quay.io", "one.example"),
    ]
    assert hosts(f"quay.io/a@{DIGEST}", *objects) == ["one.example/a", "two.example/a", "three.example/a", "quay.io/a"]
    assert hosts("quay.io/a:1", *objects) == ["one.example/a", "quay.io/a"]


@pytest.mark.req("RG-095")
@pytest.mark.parametrize("order", [1, -1], ids=["blocking object first", "blocking object last"])
def test_never_contact_source_blocks_the_primary(order: int) -> None:
    objects = [
        mirror_object("ImageDigestMirrorSet", "quay.io", "one.example", policy="NeverContactSource", name="strict"),
        mirror_object("ImageDigestMirrorSet", "quay.io", "two.example", policy="AllowContactingSource"),
    ][::order]
    assert hosts(f"quay.io/a@{DIGEST}", *objects) == ["one.example/a", "two.example/a"][::order]
    with pytest.raises(Blocked, match=r"prefix quay\.io has blocked = true in ImageDigestMirrorSet strict"):
        hosts("quay.io/a:1", *objects)


@pytest.mark.req("RG-095")
def test_a_wildcard_source_is_replaced_host_and_all() -> None:
    """As in registries.conf."""
    assert hosts(f"a.b.example/x@{DIGEST}", mirror_object("ImageDigestMirrorSet", "*.b.example", "m.example/b")) == [
        "m.example/b/x",
        "a.b.example/x",
    ]


@pytest.mark.req("RG-095")
def test_a_list_of_objects_is_taken_apart() -> None:
    """What `oc get -o yaml` prints."""
    items = [mirror_object("ImageTagMirrorSet", "quay.io", "m.example"), {"kind": "ImageTagMirrorSet", "spec": {}}]
    assert hosts("quay.io/a:1", {"kind": "List", "items": items}) == ["m.example/a", "quay.io/a"]


@pytest.mark.req("RG-095")
@pytest.mark.parametrize(
    ("item", "message"),
    [
        pytest.param({"kind": "Pod"}, "Pod: is not a mirror object", id="another kind"),
        pytest.param({}, "object without kind: is not a mirror object", id="no kind"),
        pytest.param("text", "expected an object with a kind, not str", id="no object"),
        pytest.param(
            {"kind": "ImageTagMirrorSet", "spec": {"imageTagMirrors": {}}},
            "ImageTagMirrorSet: spec.imageTagMirrors: must be a list",
            id="no list",
        ),
        pytest.param(
            {"kind": "ImageTagMirrorSet", "spec": {"imageTagMirrors": ["x"]}},
            "spec.imageTagMirrors[0]: must be an object",
            id="an entry of another type",
        ),
        pytest.param(
            mirror_object("ImageTagMirrorSet", "", "m.example"),
            "ImageTagMirrorSet m: spec.imageTagMirrors[0].source: is missing",
            id="no source",
        ),
        pytest.param(
            mirror_object("ImageTagMirrorSet", "quay.io", "https://m.example"),
            "spec.imageTagMirrors[0].mirrors[0]: 'https://m.example' has a scheme",
            id="a mirror with scheme",
        ),
        pytest.param(
            mirror_object("ImageTagMirrorSet", "quay.io", "*.m.example"),
            "a mirror cannot be a wildcard",
            id="a wildcard mirror",
        ),
        pytest.param(
            mirror_object("ImageTagMirrorSet", "quay.io", policy="Sometimes"),
            "is 'Sometimes'; expected AllowContactingSource or NeverContactSource",
            id="another policy",
        ),
    ],
)
def test_objects_that_cannot_be_meant_are_refused_by_name(item: Any, message: str) -> None:
    with pytest.raises(InvalidMirrorConfiguration) as caught:
        Configuration.from_objects([item])
    assert message in str(caught.value)
