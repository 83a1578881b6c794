"""The page in a real browser: what it asks for, runs, refuses, shows, and costs.

One Chromium serves all tests of this file; each opens a page in a profile of its own. Costs are CPU time of the page's
process: wall time says how busy the machine is.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec
import pytest
from shown_reports import report
from tools.headless_browser import SCHEMES, Page, PageError, Scheme, page_of, running

from polyarch.reports.document import Report
from polyarch.reports.page import html_page

HOSTILE = "<img src=https://elsewhere.example/x onerror=hit()><script>hit()</script><style>*{color:red}</style>"
MOST_SECONDS = 1.5

CONTRASTS = """
(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = {};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg") !== null;
    const pair = [luminance(numbers(svg ? style.fill : style.color)), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    found[`${element.tagName} ${element.className.baseVal ?? element.className}`] ??= Math.round(ratio * 100) / 100;
  }
  return found;
})()
"""
ROWS = "[...document.querySelectorAll('#workloads tbody tr:not([hidden])')]"
FIRST_CELLS = f"{ROWS}.map((row) => row.cells[0].firstChild.data)"
SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts a program for the first test that asks; says to each at which address it is told what to do."""
    with ExitStack() as stack:
        yield cache(lambda program: stack.enter_context(running(program, tmp_path_factory.mktemp("profile"))))


@pytest.fixture
async def page(browser: Callable[[str], str], peer: Callable[[str], str]) -> AsyncIterator[Page]:
    """A new page. Whatever a test did with it: it asked for nothing but its file, and had nothing to complain of."""
    async with page_of(browser(peer("chromium"))) as page:
        await page.size(1280, 900)
        yield page
        assert {url.split("#")[0] for url in page.requests} == {page.requests[0]}
        assert page.requests[0].startswith("file:///")
        assert page.console == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Report], Path]:
    """A report as a file on disk."""
    folder = tmp_path_factory.mktemp("reports")

    def written(of: Report) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(html_page(of), encoding="utf-8")
        return path

    return written


@pytest.fixture(scope="module")
def small(files: Callable[[Report], Path]) -> Path:
    return files(report(60))


@pytest.mark.req("RP-022")
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_it_follows_the_colour_scheme_and_its_text_can_be_read_in_both(
    scheme: Scheme, page: Page, small: Path
) -> None:
    for fragment in ("", "#namespace-team-02"):
        await page.open(small, fragment=fragment, scheme=scheme)
        background = await page.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, background[4:-1].split(","))) > 384) is (scheme == "light")
        contrasts = await page.value(CONTRASTS)
        assert len(contrasts) > 8
        assert {what: ratio for what, ratio in contrasts.items() if ratio < 4.5} == {}


@pytest.mark.req("RP-022")
async def test_a_table_is_sorted_with_the_keyboard(page: Page, small: Path) -> None:
    await page.open(small)
    await page.value("document.querySelector('form[data-table=workloads] select:last-of-type').focus()")
    heaviest = await page.value(FIRST_CELLS)
    head = "document.activeElement.closest('th')"
    for _ in range(20):
        await page.tab()
        if await page.value(f"{head}?.textContent === 'Cores'"):
            break
    await page.press("Enter", code=13)
    assert await page.value(f"{head}.getAttribute('aria-sort')") == "descending"
    assert await page.value(FIRST_CELLS) == heaviest
    await page.press("Space", code=32)
    assert await page.value(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert await page.value(FIRST_CELLS) == heaviest[::-1]
    await page.tab(back=True)
    await page.tab(back=True)
    await page.press("Enter", code=13)
    assert await page.value("document.querySelectorAll('#workloads [aria-sort]').length") == 1


@pytest.mark.req("RP-022")
async def test_verdicts_are_sorted_from_the_best_to_the_worst(page: Page, small: Path) -> None:
    await page.open(small)
    await page.value("document.querySelectorAll('#workloads th button')[6].click()")
    verdicts = await page.value(f"{ROWS}.map((row) => row.cells[6].textContent)")
    assert list(dict.fromkeys(verdicts)) == ["runs", "ready", "constrained", "image", "unknown"]


@pytest.mark.req("RP-022")
async def test_a_table_is_filtered_by_words_and_by_verdict(page: Page, small: Path) -> None:
    await page.open(small)
    shown = "document.querySelector('form[data-table=workloads] output').textContent"
    await page.value("document.querySelector('form[data-table=workloads] input').focus()")
    await page.type("FEED work")
    names = await page.value(FIRST_CELLS)
    assert names
    assert {name.split("-")[0] for name in names} == {"feed"}
    assert await page.value(shown) == f"{len(names)} of 60 are shown"
    await page.value(
        "{ const choice = document.querySelectorAll('form[data-table=workloads] select')[1];"
        "  choice.value = 'image'; choice.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    fewer = await page.value(FIRST_CELLS)
    assert 0 < len(fewer) < len(names)
    await page.press("Enter", code=13)
    assert await page.value(FIRST_CELLS) == fewer


@pytest.mark.req("RP-021")
async def test_without_script_everything_is_there_and_a_namespace_has_its_page(page: Page, small: Path) -> None:
    await page.open(small, script=False)
    shown = await page.seen("#workloads tbody tr", "form", "section.namespace", "#whole")
    assert shown == {"#workloads tbody tr": 60, "form": 0, "section.namespace": 0, "#whole": 1}
    await page.open(small, fragment="#namespace-team-02", script=False)
    shown = await page.seen("#namespace-team-02 tbody tr", "section.namespace", "#whole", "nav")
    assert shown.pop("#namespace-team-02 tbody tr") > 0
    assert shown == {"section.namespace": 1, "#whole": 0, "nav": 0}


async def test_who_follows_a_link_to_a_namespace_reads_on_there(page: Page, small: Path) -> None:
    await page.open(small)
    await page.value("document.querySelector('#workloads a[href=\"#namespace-team-02\"]').click()")
    await page.value(SETTLED)
    assert await page.value("document.activeElement.textContent") == "Namespace team-02"
    assert await page.value("scrollY") == 0


@pytest.mark.req("RP-021")
async def test_hostile_names_are_seen_and_do_nothing(page: Page, files: Callable[[Report], Path]) -> None:
    wild = report(4)
    rows = tuple(
        msgspec.structs.replace(each, name=HOSTILE, namespace=HOSTILE, images=(HOSTILE,), team=HOSTILE)
        for each in wild.workloads
    )
    notes = (HOSTILE,)
    await page.open(files(msgspec.structs.replace(wild, workloads=rows, notes=notes, namespaces=(), blockers=())))
    assert await page.value("document.querySelectorAll('img, style').length") == 1
    assert await page.value("document.querySelector('aside li').textContent") == HOSTILE
    await page.value("document.querySelector('#workloads a').click()")
    assert await page.seen("section.namespace:target") == {"section.namespace:target": 1}


@pytest.mark.req("RP-021")
async def test_were_markup_to_get_through_the_policy_would_refuse_it(page: Page, small: Path) -> None:
    path = small.with_name("broken-into.html")
    path.write_text(small.read_text().replace("</h1>", f"</h1>{HOSTILE}", 1))
    await page.open(path)
    refused = [text for text in page.console if "Content Security Policy" in text]
    assert len(refused) == 4  # the picture, what it does on an error, the script, the style
    with pytest.raises(PageError, match="hit is not defined"):
        await page.value("hit()")
    assert page.requests == [path.as_uri()]
    page.console.clear()  # of which nothing else is left


@pytest.mark.req("RP-021")
async def test_a_screen_reader_finds_a_name_for_every_table_control_and_drawing(page: Page, small: Path) -> None:
    await page.open(small)
    tree = (await page.send("Accessibility.getFullAXTree"))["nodes"]
    named = {"table", "searchbox", "combobox", "button", "link", "image", "region", "navigation", "article"}
    found = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
    assert named <= {role for role, _ in found}
    assert [role for role, name in found if role in named and not name] == []


@pytest.mark.req("RP-021")
async def test_on_paper_there_are_no_controls_and_on_a_small_screen_nothing_sticks_out(page: Page, small: Path) -> None:
    await page.size(360, 800)
    await page.open(small)
    assert await page.value("document.documentElement.scrollWidth") <= 360
    await page.printing()
    assert await page.seen("form", "nav", "#workloads tbody tr") == {"form": 0, "nav": 0, "#workloads tbody tr": 60}


@pytest.mark.req("RP-021")
@pytest.mark.parametrize("pixels", [718, 1047], ids=["upright", "landscape"])
async def test_on_paper_every_column_of_every_table_is_there(page: Page, small: Path, pixels: int) -> None:
    """Of A4 with margins of 10 mm. What sticks out there is cut off, and nobody can scroll."""
    await page.size(pixels, 1000)
    await page.open(small)
    await page.printing()
    cells = "[...document.querySelectorAll('#whole th, #whole td')]"
    outside = f"{cells}.filter(each => each.getBoundingClientRect().right > {pixels}).map(each => each.innerText)"
    assert await page.value(outside) == []
    assert await page.value(f"{cells}.length") > 100


@pytest.mark.req("RP-022")
async def test_2000_workloads_are_there_in_one_and_a_half_seconds(page: Page, files: Callable[[Report], Path]) -> None:
    path = files(report(2000))
    before = await page.cpu_seconds()
    await page.open(path)
    await page.value(SETTLED)
    opened = await page.cpu_seconds()
    await page.value("document.getElementById('workloads').scrollIntoView()")
    await page.value(SETTLED)
    seen = await page.cpu_seconds()
    await page.value("document.querySelector('form[data-table=workloads] input').focus()")
    await page.type("mailer")
    await page.value(SETTLED)
    filtered = await page.cpu_seconds()
    assert len(await page.value(FIRST_CELLS)) == 200
    costs = {"open": opened - before, "all rows": seen - opened, "filter": filtered - seen}
    assert {what: cost for what, cost in costs.items() if cost > MOST_SECONDS} == {}
