"""The explanation for people: one block per pod, what decided first, what is written after it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Mapping[str, Any]

_STYLES = {"inline": "green", "gated": "yellow", "audit": "cyan", "ignored": "dim", "unavailable": "red"}


def print_text(entries: Iterable[Json], notes: Sequence[str]) -> None:
    """On stdout; notes go to stderr."""
    console = Console(highlight=False, soft_wrap=True)
    for number, entry in enumerate(entries):
        if number:
            console.print()
        _print_pod(console, entry)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in notes:
        errors.print(f"note: {note}", markup=False)


def _print_pod(console: Console, entry: Json) -> None:
    decision = entry["decision"]
    title = Text(f"{entry['namespace']}/{entry['name']}", style="bold")
    if source := entry.get("source"):
        title.append(f"  ({source})", style="dim")
    console.print(title)
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("  path", Text(entry["path"], style=_STYLES.get(entry["path"], "")))
    rule = decision["rule"] if decision["rule"] != decision["reason"] else None
    rows.add_row("  decision", Text(decision["reason"] + (f" ({rule})" if rule else "")))
    rows.add_row("", Text(decision["message"]))
    if entry.get("agrees") is False:
        recorded = entry["recorded"] or {}
        was = ", ".join(recorded.get("arch") or ()) or "nothing"
        rows.add_row("  recorded", Text(f"{recorded.get('reason', 'nothing')} {was}: not what is decided now", "red"))
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
    console.print(rows)


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


def _add_terms(rows: Table, entry: Json) -> None:
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


def _add(rows: Table, name: str, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        rows.add_row(name if not number else "", Text(line))


def _next(waiting: Json) -> str:
    images = f" ({', '.join(waiting['images'])})" if waiting["images"] else ""
    until = f", for at most {waiting['until']}" if waiting["until"] else ""
    then = f", then {waiting['then']}" if waiting["then"] else ""
    return f"waits for {waiting['waitsFor']}{images}{until}{then}"
