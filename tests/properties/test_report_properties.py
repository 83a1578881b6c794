"""A report decides nothing that placement decides otherwise, and equal facts give equal bytes."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_world import cluster, node, pod, reading, workload

from polyarch.oci.inspection import Status
from polyarch.placement.decision import LookupProgress, Reason
from polyarch.placement.rules import PodFacts as PlacementFacts
from polyarch.placement.rules import decide, examine
from polyarch.placement.settings import Settings
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Report, Verdict
from polyarch.reports.facts import ImageInspections, ImageRecord
from polyarch.reports.report import ReportOptions, make_report

ARCHITECTURES = ("amd64", "arm64", "s390x")
IMAGES = tuple(f"quay.io/acme/image-{number}:1" for number in range(5))
TARGETS = tuple(NodePlatform("linux", architecture) for architecture in ARCHITECTURES)


@st.composite
def readings(draw: st.DrawFn) -> tuple[ImageRecord, ...]:
    found = []
    for image in IMAGES:
        kind = draw(st.sampled_from(("index", "index", "index", "neutral", "error")))
        if kind == "index":
            platforms = draw(st.sets(st.sampled_from(ARCHITECTURES), min_size=1))
            found.append(reading(image, *(f"linux/{each}" for each in sorted(platforms))))
        elif kind == "neutral":
            found.append(ImageRecord(image, Status.NEUTRAL, kind="artifact"))
        else:
            found.append(ImageRecord(image, Status.ERROR, code="network", host="quay.io"))
    return tuple(found)


images = st.lists(st.sampled_from(IMAGES), min_size=1, max_size=3, unique=True)
selectors = st.one_of(st.just({}), st.fixed_dictionaries({"kubernetes.io/arch": st.sampled_from(ARCHITECTURES)}))
workloads = st.lists(st.tuples(images, selectors, st.integers(0, 3000), st.integers(0, 3)), min_size=1, max_size=6)


def made(
    given: list[tuple[list[str], dict[str, str], int, int]], answers: tuple[ImageRecord, ...], seed: int
) -> Report:
    """The same facts in an order that the seed decides."""
    several = [
        workload(
            f"w{at}", *names, cpu=cpu, replicas=replicas, nodeSelector=selector, pods=(pod(f"p{at}", f"n{at % 3}"),)
        )
        for at, (names, selector, cpu, replicas) in enumerate(given)
    ]
    nodes = [node(f"n{at}", architecture) for at, architecture in enumerate(ARCHITECTURES)]
    mixed = list(answers)
    for each in (several, nodes, mixed):
        Random(seed).shuffle(each)
    facts = cluster(*several, nodes=tuple(nodes))
    return make_report(
        facts, ImageInspections(mixed), ReportOptions(targets=TARGETS, prices={"amd64": 2.0, "arm64": 1.0})
    )


@pytest.mark.req("RP-010")
@settings(max_examples=40)
@given(workloads, readings())
def test_what_is_runnable_is_what_placement_would_admit(
    given: list[tuple[list[str], dict[str, str], int, int]], answers: tuple[ImageRecord, ...]
) -> None:
    report = made(given, answers, 0)
    known = ImageInspections(answers).of("shop")
    rows = {row.name: row for row in report.workloads}
    for at, (names, selector, _, _) in enumerate(given):
        bare = workload("w", *names).template
        facts = PlacementFacts(pod=bare, namespace="shop", settings=Settings())
        decision = decide(examine(facts), known, LookupProgress.ENDED)
        everything = not decision.supported and decision.reason is not Reason.NO_SUPPORTED_ARCHITECTURE
        for target, answer in zip(TARGETS, rows[f"w{at}"].answers, strict=True):
            supported = everything or target.architecture in decision.supported
            excluded = selector.get("kubernetes.io/arch", target.architecture) != target.architecture
            if not supported:
                assert answer.verdict is Verdict.IMAGE
            elif decision.unresolved:
                assert answer.verdict is Verdict.UNKNOWN
            else:
                assert (answer.verdict is Verdict.CONSTRAINED) == excluded


@pytest.mark.req("RP-024")
@settings(max_examples=40)
@given(workloads, readings(), st.integers())
def test_the_order_of_what_was_read_changes_no_byte(
    given: list[tuple[list[str], dict[str, str], int, int]], answers: tuple[ImageRecord, ...], seed: int
) -> None:
    assert msgspec.json.encode(made(given, answers, seed)) == msgspec.json.encode(made(given, answers, 0))


@pytest.mark.req("RP-013")
@settings(max_examples=40)
@given(workloads, readings())
def test_the_sums_fit_together(
    given: list[tuple[list[str], dict[str, str], int, int]], answers: tuple[ImageRecord, ...]
) -> None:
    report = made(given, answers, 0)
    for number, sums in enumerate(report.sums):
        assert sum(each.workloads for each in sums.verdicts) == len(given)
        shares = [sums.runs_share, sums.ready_share, sums.unconstrained_share]
        assert shares == sorted(shares, key=lambda share: share or 0)
        reached = [point.share for point in sums.curve]
        assert reached == sorted(reached)
        unknown = any(row.answers[number].verdict is Verdict.UNKNOWN for row in report.workloads)
        mixed = any(len({each.code for each in row.answers[number].reasons} & {"ImageLacksTarget", "ImageUnknown"}) == 2
                    for row in report.workloads)  # fmt: skip
        if not unknown and not mixed and sums.ready_share is not None:
            assert reached[-1] == 1.0
