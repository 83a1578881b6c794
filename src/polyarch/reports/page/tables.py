"""Tables that read the same for everybody: a caption, headers with a scope, and what a script needs to sort them.

Without script they are plain tables. A cell whose order is not that of its text carries it as ``data-v``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from polyarch.quantity import ABBREVIATED
from polyarch.reports.page.markup import Content, Markup, join, tag
from polyarch.reports.wording import cores


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


class Choice(NamedTuple):
    """A column of which one may choose what to see."""

    name: str
    column: int
    options: Sequence[str]


def controls(table_name: str, what: str, choices: Iterable[Choice] = ()) -> Markup:
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
