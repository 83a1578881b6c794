"""HTML that cannot be broken out of, and the tables and drawings of the page that are made of it.

Names, images, labels and messages of a report come from a cluster, where people write what they like. Only
:func:`tag` and :func:`join` make :class:`Markup`, and both escape what is not Markup already, so that there is no place
where somebody could forget it. Names of tags and attributes are this package's own, never a report's. Pure.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from polyarch.quantity import ABBREVIATED
from polyarch.reports.document import CurvePoint, TargetSums, Verdict
from polyarch.reports.wording import cores, counted, percent, steps

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | None
"""What may stand in an element: text, markup, or nothing."""


def shown(text: str) -> str:
    """The text with what would act instead of being seen made visible.

    Control characters, halves of surrogates and those that turn the direction of writing: with them a name could look
    like another one, or the file could not be written.
    """
    if text.isprintable():
        return text
    return "".join(" " if each.isspace() else "�" if unicodedata.category(each)[0] == "C" else each for each in text)


def escaped(text: str) -> Markup:
    """As it has to be written between tags and in attributes."""
    return text if isinstance(text, Markup) else Markup(shown(text).translate(_ESCAPED))


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """One after another; None is left out."""
    return Markup(escaped(separator).join(escaped(part) for part in parts if part is not None))


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element. ``class_`` is written ``class``, ``data_v`` as ``data-v``; True is an attribute without a value."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        written.append(attribute if value is True else f'{attribute}="{escaped(str(value))}"')
    opening = f"<{' '.join(written)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(content)}</{name}>")


# -- tables that read the same for everybody: a caption, headers with a scope, and what a script needs -----------------
# Without script they are plain tables. A cell whose order is not that of its text carries it as data-v.


class Column(NamedTuple):
    name: Content
    number: bool = False
    """Numbers are on the right, and sorted from the greatest at first."""


def table(
    name: str, caption: str, columns: Sequence[Column], rows: Iterable[Markup], *, controls: Content = None
) -> Markup:
    """A table by its id; it scrolls within itself where it is wider than the window."""
    heads = [tag("th", column.name, scope="col", class_="number" if column.number else None) for column in columns]
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        "\n",
        tag("tbody", join(rows, "\n")),
        id=name,
    )
    box = tag("div", whole, **{"class": "scroll", "role": "region", "aria-label": caption, "tabindex": "0"})
    return join([controls, box], "\n")


def row(*cells: Markup) -> Markup:
    return tag("tr", *cells)


def head(*content: Content) -> Markup:
    """The cell that names its row."""
    return tag("th", *content, scope="row")


def cell(*content: Content, class_: str | None = None, order: float | None = None) -> Markup:
    return tag("td", *content, class_=class_, data_v=None if order is None else f"{round(order, 4):.15g}")


def number(text: str, order: float | None = None) -> Markup:
    """``order`` where the text is no plain number."""
    return cell(text, class_="number", order=order)


def load(amount: float) -> Markup:
    """Cores, or replicas; what is abbreviated is sorted by what it stands for."""
    return number(cores(amount), amount if abs(amount) >= ABBREVIATED else None)


def items(contents: Iterable[Content]) -> Markup | None:
    """A list, or nothing if it is empty."""
    found = [tag("li", each) for each in contents]
    return tag("ul", *found) if found else None


class FilterColumn(NamedTuple):
    """A column of which one may choose what to see."""

    name: str
    column: int
    options: Sequence[str]


def controls(table_name: str, what: str, choices: Iterable[FilterColumn] = ()) -> Markup:
    """What filters a table: a text that its rows contain, and choices. Hidden where there is no script."""
    search = tag("input", type="search", autocomplete="off", spellcheck="false")
    fields = [tag("label", f"Find {what} ", search)]
    fields += [
        tag(
            "label",
            f"{each.name} ",
            tag(
                "select",
                tag("option", "any", value=""),
                *(tag("option", option, value=option) for option in each.options),
                data_column=each.column,
            ),
        )
        for each in choices
    ]
    status = tag("output", "", aria_live="polite")
    return tag("form", *fields, status, class_="filter", data_table=table_name, hidden=True)


# -- drawings, as inline SVG: how the weight divides into verdicts, and what fixing images would give ------------------
# Colours are classes, since the page's security policy allows no style but its own sheet, and since there are two
# colour schemes. What a drawing shows is also said in words: as its label, and in a table beside it.

WIDTH: Final = 640
HEIGHT: Final = 240
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 12, 36
POINTED_OUT: Final = 100
"""Points that say which image they are when pointed at; more are too narrow for that."""


def bar(parts: Sequence[tuple[Verdict, float]], words: str) -> Markup:
    """One bar, divided; ``words`` say what it shows."""
    total = sum(amount for _, amount in parts) or 1
    rectangles = []
    left = 0.0
    for verdict, amount in parts:
        width = amount * 100 / total
        if width:
            rectangles.append(
                tag("rect", class_=verdict, x=f"{left:.2f}", y=0, width=f"{max(width - 0.3, 0.1):.2f}", height=4)
            )
        left += width
    return tag(
        "svg",
        *rectangles,
        **{"class": "bar", "viewBox": "0 0 100 4", "preserveAspectRatio": "none", "role": "img", "aria-label": words},
    )


def curve(sums: TargetSums) -> Markup:
    """What could run on the target (upwards) after so many images are fixed (to the right)."""
    points = sums.curve
    most = max(points[-1].images, 1)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(images: float) -> float:
        return round(LEFT + width * images / most, 1)

    def y(share: float) -> float:
        return round(TOP + height * (1 - min(max(share, 0), 1)), 1)

    line = f"M{x(points[0].images)} {y(points[0].share)}" + "".join(
        f"H{x(point.images)}V{y(point.share)}" for point in points[1:]
    )
    area = f"{line}V{y(0)}H{x(points[0].images)}Z"
    grid = [
        join(
            [
                tag("path", class_="grid", d=f"M{LEFT} {y(each / 100)}H{LEFT + width}"),
                _text(LEFT - 6, y(each / 100) + 4, f"{each} %", "end"),
            ]
        )
        for each in (0, 25, 50, 75, 100)
    ]
    ticks = [_text(x(step), HEIGHT - 18, str(step), "middle") for step in steps(most, 8)]
    return tag(
        "svg",
        *grid,
        *ticks,
        _text(LEFT + width / 2, HEIGHT - 3, "images fixed, the heaviest first", "middle"),
        tag("path", class_="area", d=area),
        tag("path", class_="line", d=line),
        *_pointed_out(points, x, height),
        **{"class": "curve", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": _words(sums)},
    )


def _words(sums: TargetSums) -> str:
    first, last = sums.curve[0], sums.curve[-1]
    return (
        f"Of the weight, {percent(first.share)} could run on {sums.target} once constraints are lifted and no image is "
        f"fixed, {percent(last.share)} with {counted(last.images, 'image')} fixed"
    )


def _pointed_out(points: Sequence[CurvePoint], x: Callable[[float], float], height: float) -> list[Markup]:
    found = []
    for point, following in zip(points[:POINTED_OUT], [*points[1:POINTED_OUT], None], strict=False):
        end = x(following.images) if following else WIDTH - RIGHT
        said = f"{counted(point.images, 'image')}: {percent(point.share)}{f', with {point.image}' * bool(point.image)}"
        area = {"x": str(x(point.images)), "y": str(TOP), "height": str(height)}
        found.append(
            tag("g", tag("title", said), tag("rect", class_="point", width=max(end - x(point.images), 1), **area))
        )
    return found


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, **{"x": str(x), "y": str(y), "text-anchor": anchor})
