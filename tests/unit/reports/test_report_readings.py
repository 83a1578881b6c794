"""What is kept of an answer, and what becomes of answers that nobody can use."""

import pytest

from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.platforms import NodePlatform, Platform
from polyarch.reports.facts import ImageInspections, ImageRecord

IMAGE = "quay.io/acme/app:1"
REFERENCE = parse(IMAGE)


def answered(*platforms: Platform) -> Inspection:
    entries = tuple(Entry(platform, f"sha256:{at:064x}") for at, platform in enumerate(platforms))
    return Inspection(REFERENCE, Status.RESOLVED, "index", digest="sha256:" + "a" * 64, entries=entries)


@pytest.mark.req("RP-002")
def test_an_answer_that_is_kept_decides_as_before() -> None:
    answer = answered(Platform.of("linux", "arm", "v6"), Platform.of("windows", "amd64", os_version="10.0.20348.1"))
    again = ImageRecord.of(IMAGE, answer).inspection
    assert again.node_platforms == answer.node_platforms
    assert [each.digest for each in again.entries] == [each.digest for each in answer.entries]


@pytest.mark.req("RP-003")
@pytest.mark.parametrize(
    "odd", [Platform("linux", "a b"), Platform("amd64", "x"), Platform("", ""), Platform("linux", "")]
)
def test_a_platform_that_no_node_can_be_costs_the_others_nothing(odd: Platform) -> None:
    reading = ImageRecord.of(IMAGE, answered(odd, Platform.of("linux", "arm64")))
    assert reading.inspection.node_platforms == (NodePlatform("linux", "arm64"),)


@pytest.mark.req("RP-003")
def test_the_last_good_reading_counts_while_a_registry_fails() -> None:
    error = InspectionError.of("network", "a text of the registry", host="quay.io")
    good = answered(Platform.of("linux", "arm64"))
    failing = Inspection(REFERENCE, Status.ERROR, error=error, last_good=good, last_good_age=60.0)
    assert ImageRecord.of(IMAGE, failing).status is Status.RESOLVED


@pytest.mark.req("RP-002")
def test_no_text_of_a_registry_is_kept() -> None:
    error = InspectionError.of("network", "a text of the registry", host="quay.io")
    reading = ImageRecord.of(IMAGE, Inspection(REFERENCE, Status.ERROR, error=error))
    assert (reading.code, reading.host) == ("network", "quay.io")
    assert "a text" not in repr(reading)


@pytest.mark.req("RP-003")
def test_what_names_no_image_has_no_answer() -> None:
    answers = ImageInspections([ImageRecord("NOT AN IMAGE", Status.RESOLVED)])
    assert answers.of("shop") == {}
