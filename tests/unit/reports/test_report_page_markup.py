"""The page as text: what a hostile cluster cannot make of it, what it asks for, and what its tables say."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from report_world import BOTH, ONLY, cluster, report_of, workload
from shown_reports import HOSTILE, TARGETS, report

from polyarch.quantity import MOST
from polyarch.reports.document import SCHEMA, FeatureSection, PartRow, Report, Source, Verdict, Weight
from polyarch.reports.page import html_page
from polyarch.reports.page_markup import Markup, bar, escaped, join, shown, tag

HOSTILE_SHOWN = "<img src=x onerror=alert(1)>'\"&</script><script>alert(2)</script>���"
FIXED = {SCHEMA, "Report", "cores", "cluster", "tag", "publish", *(verdict.value for verdict in Verdict)}
"""Words that the document itself allows in their places, and no others."""
MOST_BYTES = 3 << 20


class Seen(HTMLParser):
    """What a page consists of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def hostile(value: Any) -> Any:
    """Every text of a report replaced by one that wants to be more than text."""
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(each) for each in value]
    if isinstance(value, str) and value and value not in FIXED:
        return HOSTILE
    return value


def hostile_report() -> Report:
    return msgspec.convert(hostile(msgspec.to_builtins(report(30))), Report)


@pytest.fixture(scope="module")
def page() -> str:
    return html_page(report(40))


@pytest.mark.req("RP-021")
def test_every_text_of_the_cluster_stays_text() -> None:
    tame, wild = Seen(html_page(report(30))), Seen(html_page(hostile_report()))
    assert {tag for tag, _ in wild.tags} <= {tag for tag, _ in tame.tags}
    allowed = {name for _, attributes in tame.tags for name in attributes}
    assert {name for _, attributes in wild.tags for name in attributes} <= allowed
    assert len(wild.named("script")) == 1
    assert "".join(wild.texts).count(HOSTILE_SHOWN) > 300
    assert not [attributes for _, attributes in wild.tags if not (attributes.get("href") or "#").startswith("#")]


@pytest.mark.req("RP-021")
def test_what_cannot_be_written_or_would_turn_the_writing_direction_is_seen_instead() -> None:
    text = html_page(hostile_report())
    assert text.encode()
    assert not set("\u202e\x00\ud800") & set(text)


@pytest.mark.req("RP-021")
def test_the_policy_allows_this_style_and_this_script_and_nothing_else(page: str) -> None:
    policy = next(each["content"] or "" for each in Seen(page).named("meta") if "http-equiv" in each)
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    for name in ("style", "script"):
        content = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert directives.pop(f"{name}-src") == f"'sha256-{digest}'"
    assert set(directives.values()) == {"'none'"}


@pytest.mark.req("RP-021")
def test_nothing_in_the_file_names_a_place_elsewhere(page: str) -> None:
    seen = Seen(page)
    asking = {"src", "srcset", "data", "action", "poster", "style", "background"}
    assert not [attributes for _, attributes in seen.tags if asking & attributes.keys()]
    assert not re.search(r"url\(|@import|https?://", page)


@pytest.mark.req("RP-021")
def test_tables_have_captions_headers_a_scope_and_controls_a_label(page: str) -> None:
    seen = Seen(page)
    assert len(seen.named("table")) == len(seen.named("caption"))
    assert {each.get("scope") for each in seen.named("th")} == {"col", "row"}
    labelled = re.findall(r"<label>[^<]+<(?:input|select)", page)
    assert len(labelled) == len(seen.named("input")) + len(seen.named("select")) > 0
    assert all(each.get("aria-label") for each in seen.named("svg"))


def test_every_id_is_there_once_and_every_link_has_its_place(page: str) -> None:
    for text in (page, html_page(hostile_report()), html_page(report(0))):
        seen = Seen(text)
        ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        places = {
            attributes[key]
            for _, attributes in seen.tags
            for key in ("aria-labelledby", "data-table")
            if key in attributes
        }
        assert places <= set(ids)
        assert {(each["href"] or "").removeprefix("#") for each in seen.named("a")} <= set(ids)


def test_a_bar_has_its_parts_side_by_side_and_as_wide_as_their_share() -> None:
    seen = Seen(bar([(Verdict.READY, 1.0), (Verdict.IMAGE, 0.0), (Verdict.UNKNOWN, 3.0)], "a quarter")).named("rect")
    assert [(each["class"], each["x"], each["width"]) for each in seen] == [
        ("ready", "0.00", "24.70"),
        ("unknown", "25.00", "74.70"),
    ]


@pytest.mark.req("RP-021")
def test_every_part_of_a_report_has_its_table() -> None:
    whole = report(3)
    part = FeatureSection((PartRow("Something to know", 1),))
    shown = Seen(html_page(msgspec.structs.replace(whole, taints=part, builds=part, numa=part)))
    names = {each.get("id") for each in shown.named("table")}
    assert {"placement-reasons", "placement-notable", "taints", "numa", "builds"} <= names
    assert shown.texts.count("Something to know") == 3


def test_of_many_names_the_first_are_listed_and_the_others_are_counted() -> None:
    part = FeatureSection((PartRow("Few", 2, ("a", "b")), PartRow("Many", 9, ("c", "d")), PartRow("Unnamed", 4)))
    text = " ".join(Seen(html_page(msgspec.structs.replace(report(3), numa=part))).texts)
    assert text.count("and 7 more") == 1
    assert "and 4 more" not in text


def test_each_namespace_has_a_page_that_says_in_full_what_is_in_the_way(page: str) -> None:
    first = report(40).workloads[2]
    section = page.split(f'id="namespace-{first.namespace}"')[1].split("</section>")[0]
    assert first.answers[1].reasons[0].message in section
    assert first.images[1] in section


def test_namespaces_whose_names_are_alike_once_written_as_an_anchor_have_pages_of_their_own() -> None:
    one = report(2)
    names = ("a b", "a%20b")
    workloads = tuple(msgspec.structs.replace(each, namespace=names[place]) for place, each in enumerate(one.workloads))
    text = html_page(msgspec.structs.replace(one, workloads=workloads, namespaces=()))
    assert 'id="namespace-a%20b"' in text
    assert 'id="namespace-a%2520b"' in text


def test_a_report_about_nothing_is_a_page_too() -> None:
    empty = Report(source=Source("files"), targets=(), basis="replicas", weight=Weight(), sums=())
    text = html_page(empty)
    assert "0 workloads" in text
    assert "Images in the way" not in text


def test_an_interrupted_report_says_so_at_its_top() -> None:
    text = html_page(msgspec.structs.replace(report(3), complete=False))
    assert text.index("not complete") < text.index("By target")


def test_equal_reports_are_equal_bytes() -> None:
    assert html_page(report(25)) == html_page(report(25))


@pytest.mark.req("RP-041")
def test_2000_workloads_fit_into_3_mib() -> None:
    assert len(html_page(report(2000)).encode()) <= MOST_BYTES


def test_the_reports_of_these_tests_have_every_verdict() -> None:
    """Otherwise a page could lack one without anybody seeing it."""
    found = {answer.verdict for workload in report(40).workloads for answer in workload.answers}
    assert found == set(Verdict) - {Verdict.EXCLUDED}
    assert {answer.target for workload in report(1).workloads for answer in workload.answers} == set(TARGETS)


def test_markup_is_not_escaped_twice_and_text_always_is() -> None:
    assert tag("p", "a < b", tag("b", "&"), title='"', hidden=True, class_=None) == (
        '<p title="&quot;" hidden>a &lt; b<b>&amp;</b></p>'
    )
    assert join(["<", None, Markup("<br>")], "&") == "&lt;&amp;<br>"
    assert escaped("'") == "&#39;"


def test_text_that_is_shown_keeps_what_people_write() -> None:
    assert shown("naïve — 日本語") == "naïve — 日本語"
    assert shown("two\nlines\u2066") == "two lines�"


@pytest.mark.req("RP-021")
def test_a_request_that_nobody_can_meet_does_not_stick_out_of_its_tile() -> None:
    """A pod that asks for 1e400 CPUs is a valid object, and anybody may create one."""
    vast = workload("vast", BOTH, cpu=MOST, replicas=100_000)
    page = html_page(report_of(cluster(vast, workload("far", ONLY, cpu=MOST), workload("usual", BOTH))))
    tiles = Seen(page[page.index("<article") : page.rindex("</article")])
    assert max(len(word) for text in tiles.texts for word in text.split()) <= len("constraints.")
    cells = r'<td class="number"( data-v="[^"]+")?>([\d.]+[EP]?)</td><td class="number">(\d+)<'
    assert re.findall(cells, page[page.index('id="workloads"') :])[:3] == [
        (' data-v="9.22337203685478e+20"', "922.3E", "100000"),
        (' data-v="9.22337203685478e+15"', "9.2P", "1"),
        ("", "1", "1"),
    ]
