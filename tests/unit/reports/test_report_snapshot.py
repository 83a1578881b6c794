"""Files of facts and of former reports: kept, read again, compared, refused."""

import msgspec
import pytest
from report_world import AMD64, ARM64, BOTH, ONLY, READINGS, cluster, report_of, workload

from polyarch.reports.document import Report
from polyarch.reports.facts import ImageInspections, InvalidFile, decode_report, decode_snapshot, encode_snapshot
from polyarch.reports.report import compare


@pytest.mark.req("RP-002")
def test_answers_survive_the_file() -> None:
    facts = cluster(workload("a", BOTH), workload("b", ONLY))
    kept = decode_snapshot(encode_snapshot(facts, ImageInspections(READINGS), complete=False))
    assert kept.readings == ImageInspections(READINGS).readings
    assert not kept.complete


@pytest.mark.req("RP-050")
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "cut off"),
        (b'{"schemaVersion": "polyarch.dev/report-snapshot/v1", "facts": {"sou', "cut off"),
        (b"not json", "expected JSON"),
        (b"[]", "expected JSON"),
        (b"{}", "without a schema"),
        (b'{"schemaVersion": "polyarch.dev/report-snapshot/v2"}', "found polyarch.dev/report-snapshot/v2"),
        (b'{"schemaVersion": "polyarch.dev/report-snapshot/v1"}', "missing required field"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_what_was_expected(content: bytes, found: str) -> None:
    with pytest.raises(InvalidFile, match=r"polyarch\.dev/report-snapshot/v1") as raised:
        decode_snapshot(content)
    assert found in str(raised.value)


@pytest.mark.req("RP-050")
def test_text_that_no_decoder_takes_is_refused_too() -> None:
    report = msgspec.json.encode(report_of(cluster(workload("a", BOTH))))
    facts = encode_snapshot(cluster(workload("a", BOTH)), ImageInspections(READINGS))
    for content, decode in ((report, decode_report), (facts, decode_snapshot)):
        deep = content.rstrip().removesuffix(b"}") + b',"more":' + b"[" * 200_000
        for each in (content.replace(b"Deployment", b"\xff\xfe"), deep):
            with pytest.raises(InvalidFile, match=r"polyarch\.dev/report"):
                decode(each)


@pytest.mark.req("RP-050")
def test_a_snapshot_with_an_error_that_does_not_exist_is_refused() -> None:
    content = encode_snapshot(cluster(workload("a", BOTH)), ImageInspections(READINGS)).replace(
        b'"network"', b'"no-such"'
    )
    with pytest.raises(InvalidFile, match="no-such"):
        decode_snapshot(content)


@pytest.mark.req("RP-024")
def test_a_report_is_read_again_as_it_was_written() -> None:
    report = report_of(cluster(workload("a", BOTH), workload("b", ONLY)))
    assert decode_report(msgspec.json.encode(report)) == report
    newer = msgspec.json.encode({**msgspec.to_builtins(report), "apiVersion": "polyarch.dev/report/v2"})
    for other, found in ((b'{"apiVersion": "v1"}', "v1"), (newer, "polyarch.dev/report/v2")):
        with pytest.raises(InvalidFile, match=f"schema polyarch.dev/report/v1, found {found};"):
            decode_report(other)


@pytest.mark.req("RP-024")
def test_what_became_better_or_worse_came_and_went() -> None:
    before = report_of(
        cluster(
            workload("a-little", ONLY), workload("up", ONLY, cpu=3000), workload("down", BOTH), workload("gone", BOTH)
        )
    )
    after = report_of(
        cluster(
            workload("a-little", BOTH), workload("up", BOTH, cpu=4000), workload("down", ONLY), workload("new", BOTH)
        ),
        targets=(AMD64, ARM64),
    )
    found = compare(after, before)
    assert [(each.workload, each.before, each.after, each.cores) for each in found.better] == [
        ("shop/Deployment/up", "image", "ready", 4.0),
        ("shop/Deployment/a-little", "image", "ready", 1.0),
    ]
    assert [each.cores for each in (*found.appeared, *found.disappeared)] == [1.0, 1.0]
    assert [each.workload for each in found.worse] == ["shop/Deployment/down"]
    assert [each.workload for each in found.appeared] == ["shop/Deployment/new"]
    assert [each.workload for each in found.disappeared] == ["shop/Deployment/gone"]
    assert {each.target for each in (*found.better, *found.worse)} == {"arm64"}
    assert found.former == "2026-03-01T12:00:00Z"
    assert compare(after, after).better == ()


@pytest.mark.req("RP-020")
def test_the_document_states_its_schema_and_gains_members_only() -> None:
    document = msgspec.to_builtins(report_of(cluster(workload("a", BOTH))))
    assert document["apiVersion"] == "polyarch.dev/report/v1"
    assert set(document) >= {"source", "targets", "sums", "workloads", "blockers", "namespaces", "notes"}
    newer = msgspec.json.encode({**document, "added": {"later": 1}})
    assert isinstance(decode_report(newer), Report)
