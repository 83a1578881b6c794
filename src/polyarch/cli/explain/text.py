"""The explanation for people: one block per pod, what decided first, what is written after it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from polyarch.cli.output.printable import printable
from polyarch.cli.output.render import console as stdout
from polyarch.cli.output.render import remarks

Json = Mapping[str, Any]

_STYLES = {"inline": "green", "gated": "yellow", "audit": "cyan", "ignored": "dim", "unavailable": "red"}


class _Rows:
    """Names and what they have, one line each: a terminal wraps long ones, a pipe gets them as they are."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Text]] = []

    def add_row(self, name: str, text: Text) -> None:
        self._rows.append((name, text))

    def print(self, console: Console) -> None:
        width = max(len(name) for name, _ in self._rows)
        for name, text in self._rows:
            text.plain = printable(text.plain)
            console.print(Text.assemble((name.ljust(width), "dim"), "  ", text), soft_wrap=True)


def print_text(entries: Iterable[Json], notes: Sequence[str]) -> None:
    """On stdout; notes go to stderr."""
    console = stdout()
    for number, entry in enumerate(entries):
        if number:
            console.print()
        _print_pod(console, entry)
    errors = remarks()
    for note in notes:
        errors.print(f"note: {note}", markup=False)


def _print_pod(console: Console, entry: Json) -> None:
    decision = entry["decision"]
    title = Text(f"{entry['namespace']}/{entry['name']}", style="bold")
    if source := entry.get("source"):
        title.append(f"  ({source})", style="dim")
    console.print(title)
    rows = _Rows()
    rows.add_row("  path", Text(entry["path"], style=_STYLES.get(entry["path"], "")))
    rule = decision["rule"] if decision["rule"] != decision["reason"] else None
    rows.add_row("  decision", Text(decision["reason"] + (f" ({rule})" if rule else "")))
    rows.add_row("", Text(decision["message"]))
    if (agrees := entry.get("agrees")) is not None:
        recorded = entry["recorded"] or {"reason": "nothing"}
        was = " ".join((recorded["reason"], ", ".join(recorded.get("arch") or ()))).strip()
        verdict, style = ("as it is decided now", "") if agrees else ("not what is decided now", "red")
        rows.add_row("  recorded", Text(f"{was}: {verdict}", style))
    for number, image in enumerate(decision["images"]):
        rows.add_row("  images" if not number else "", _image(image))
    _add_terms(rows, entry)
    labels = [f"{key}={value}" for key, value in entry["labels"].items() if key.startswith("multiarch.openshift.io/")]
    _add(rows, "  labels", labels)
    _add(rows, "  gates", entry["gates"])
    _add(rows, "  warnings", entry["warnings"])
    _add(rows, "  events", [f"{event['type']} {event['reason']}: {event['note']}" for event in entry["events"]])
    if (waiting := entry["next"]) is not None:
        rows.add_row("  next", Text(_next(waiting)))
    rows.print(console)


def _image(image: Json) -> Text:
    text = Text(image["image"])
    if image["platforms"]:
        text.append(f"  {', '.join(image['platforms'])}")
    else:
        text.append(f"  {image['verdict']} ({image['note']})")
    if image["stale"]:
        text.append("  an older reading, its registry does not answer", style="yellow")
    if image["problem"]:
        text.append(f"  {image['problem']}", style="red")
    return text


def _add_terms(rows: _Rows, entry: Json) -> None:
    for what in ("required", "preferred"):
        before, after = entry[what]["before"], entry[what]["after"]
        if before == after:
            _add(rows, f"  {what}", [*_terms(before), "(unchanged)"] if before else [])
            continue
        _add(rows, f"  {what}", [*(f"- {term}" for term in _terms(before)), *(f"+ {term}" for term in _terms(after))])


def _terms(affinity: Any) -> list[str]:
    """One line per term."""
    if not affinity:
        return []
    terms = affinity.get("nodeSelectorTerms", []) if isinstance(affinity, dict) else affinity
    lines = []
    for term in terms:
        preference = term.get("preference", term)
        expressions = [*(preference.get("matchExpressions") or ()), *(preference.get("matchFields") or ())]
        texts = [
            " ".join((each["key"], each["operator"], ",".join(each.get("values") or ()))).strip()
            for each in expressions
        ]
        weight = f"{term['weight']}: " if "weight" in term else ""
        lines.append(weight + (" and ".join(texts) or "an empty term, which matches no node"))
    return lines


def _add(rows: _Rows, name: str, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        rows.add_row(name if not number else "", Text(line))


def _next(waiting: Json) -> str:
    images = f" ({', '.join(waiting['images'])})" if waiting["images"] else ""
    until = f", for at most {waiting['until']}" if waiting["until"] else ""
    then = f", then {waiting['then']}" if waiting["then"] else ""
    return f"waits for {waiting['waitsFor']}{images}{until}{then}"
