"""Which image a node pulls for the name that a pod gives."""

import pytest

from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.reference import InvalidReference, Reference
from polyarch.sandbox.nodes.kubelets import inspected

SEARCHED = ("first.test", "second.test/mirror")


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("image", "search", "asked"),
    [
        ("nginx", (), ["docker.io/library/nginx:latest"]),
        ("acme/web:1", (), ["docker.io/acme/web:1"]),
        ("nginx", SEARCHED, ["first.test/nginx:latest", "second.test/mirror/nginx:latest"]),
        ("acme/web:1", SEARCHED, ["first.test/acme/web:1", "second.test/mirror/acme/web:1"]),
        ("quay.io/acme/web:1", SEARCHED, ["quay.io/acme/web:1"]),
        ("localhost/web:1", SEARCHED, ["localhost/web:1"]),
    ],
)
async def test_a_short_name_is_looked_for_where_the_configuration_says(
    image: str, search: tuple[str, ...], asked: list[str]
) -> None:
    seen = []

    async def inspect(place: Reference) -> Inspection:
        seen.append(place.canonical)
        return Inspection(place, Status.ERROR, error=InspectionError.of("not-found", "there is none"))

    await inspected(image, Configuration(search=search), inspect)
    assert seen == asked


@pytest.mark.req("SB-004")
async def test_the_first_registry_that_has_the_image_is_taken_and_one_that_fails_ends_the_search() -> None:
    said = {"first.test": "not-found", "second.test": "server-error"}

    async def inspect(place: Reference) -> Inspection:
        if (code := said.get(place.registry)) is not None:
            return Inspection(place, Status.ERROR, error=InspectionError.of(code, "no"))
        return Inspection(place, Status.RESOLVED)

    everywhere = Configuration(search=("first.test", "third.test", "second.test"))
    assert (await inspected("nginx", everywhere, inspect)).reference.canonical == "third.test/nginx:latest"
    broken = Configuration(search=("second.test", "third.test"))
    assert (await inspected("nginx", broken, inspect)).reference.canonical == "second.test/nginx:latest"


@pytest.mark.req("SB-004")
async def test_a_name_that_is_none_is_an_error() -> None:
    async def inspect(place: Reference) -> Inspection:
        raise AssertionError(place)

    for configuration in (Configuration(), Configuration(search=SEARCHED)):
        with pytest.raises(InvalidReference):
            await inspected("UPPER/case", configuration, inspect)
