"""The file: what a browser has to know first, the sections in their order, one style sheet and one script (RP-021).

The file asks for nothing from anywhere. Its content security policy allows exactly this style sheet and this script, by
their hashes: were markup to get through in a name after all, a browser would neither run nor load it.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path

from polyarch.reports.document import Report
from polyarch.reports.page.markup import Content, Markup, join, tag
from polyarch.reports.page.overview import curves, facts, nodes, notes, tiles
from polyarch.reports.page.sections import blockers, comparison, features, groups, node_drift, section
from polyarch.reports.page.workloads import all_workloads, namespace_pages

TITLE = "What runs where, and what could"


def html_page(report: Report) -> str:
    """The whole report as one HTML file, equal for equal reports."""
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    title = f"{TITLE}: {report.source.name}" if report.source.name else TITLE
    top = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("header", tag("h1", TITLE), tag("p", facts(report)), _contents(report)),
        tag("main", _whole(report), namespace_pages(report)),
        tag("footer", tag("p", "Made by ", tag("code", "polyarch report"), f", {report.api_version}.")),
        tag("script", Markup(script)),
        id="top",
    )
    return f"<!DOCTYPE html>\n{tag('html', top, body, lang='en')}\n"


def _whole(report: Report) -> Markup:
    parts: list[Content] = [
        notes(report),
        section("targets", "By target", tiles(report)),
        comparison(report),
        curves(report),
        blockers(report),
        *groups(report),
        nodes(report),
        *features(report),
        node_drift(report),
        section("workloads", "Workloads", all_workloads(report)),
    ]
    return tag("div", join(parts, "\n"), id="whole")


def _contents(report: Report) -> Markup:
    """Links to the sections that there are."""
    places: list[tuple[str, str, object]] = [
        ("images", "Images to fix", [sums for sums in report.sums if len(sums.curve) > 1]),
        ("blockers-title", "Images in the way", report.blockers),
        ("namespaces-title", "Namespaces", report.namespaces),
        ("pools-title", "Node pools", report.pools),
        ("teams-title", "Teams", report.teams),
        ("workloads-title", "Workloads", report.workloads),
    ]
    links = [tag("li", tag("a", words, href=f"#{place}")) for place, words, there in places if there]
    return tag("nav", tag("ul", *links), aria_label="Sections")


@cache
def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
