"""The explanation for people: one block per pod, what decided first, what is written after it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from polyarch.cli.output.terminal import printable, styled

Json = Mapping[str, Any]

_STYLES = {"inline": "green", "gated": "yellow", "audit": "cyan", "ignored": "dim", "unavailable": "red"}


class _Row(NamedTuple):
    """What is said, in parts with a style each. No line is wrapped: in a pipe it is as long as it is."""

    name: str
    parts: tuple[tuple[str, str], ...]


def text_of(entries: Iterable[Json], *, colour: bool = False) -> str:
    """A block for each pod."""
    return "\n".join(_pod(entry, colour) for entry in entries)


def _pod(entry: Json, colour: bool) -> str:
    title = styled(printable(f"{entry['namespace']}/{entry['name']}"), "bold", colour=colour)
    if source := entry.get("source"):
        title += styled(printable(f"  ({source})"), "dim", colour=colour)
    rows = list(_rows(entry))
    width = max(len(row.name) for row in rows)
    lines = [
        f"{styled(row.name.ljust(width), 'dim', colour=colour)}  "
        + "".join(styled(printable(text), style, colour=colour) for text, style in row.parts)
        for row in rows
    ]
    return "".join(f"{line.rstrip()}\n" for line in (title, *lines))


def _rows(entry: Json) -> Iterator[_Row]:
    decision = entry["decision"]
    yield _row("path", entry["path"], _STYLES.get(entry["path"], ""))
    rule = decision["rule"] if decision["rule"] != decision["reason"] else None
    yield _row("decision", decision["reason"] + (f" ({rule})" if rule else ""))
    yield _row("", decision["message"])
    if (agrees := entry.get("agrees")) is not None:
        recorded = entry["recorded"] or {"reason": "nothing"}
        was = " ".join((recorded["reason"], ", ".join(recorded.get("arch") or ()))).strip()
        verdict, style = ("the same as now", "") if agrees else ("differs from now", "red")
        yield _row("recorded", f"{was}: {verdict}", style)
    for number, image in enumerate(decision["images"]):
        yield _Row("  images" if not number else "", tuple(_image(image)))
    for what in ("required", "preferred"):
        yield from _several(what, _changed(entry[what]["before"], entry[what]["after"]))
    labels = [f"{key}={value}" for key, value in entry["labels"].items() if key.startswith("multiarch.openshift.io/")]
    yield from _several("labels", labels)
    yield from _several("gates", entry["gates"])
    if (tolerations := entry.get("tolerations")) is not None:
        yield _row("taints", tolerations["reason"])
        yield _row("", tolerations["message"])
        yield from (_row("", _taint(each)) for each in tolerations["nodes"])
    yield from _several("warnings", entry["warnings"])
    yield from _several("events", [f"{event['type']} {event['reason']}: {event['note']}" for event in entry["events"]])
    if (waiting := entry["next"]) is not None:
        yield _row("next", _next(waiting))


def _row(name: str, text: str, style: str = "") -> _Row:
    return _Row(f"  {name}" if name else "", ((text, style),))


def _several(name: str, lines: Iterable[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines):
        yield _row(name if not number else "", line)


def _image(image: Json) -> Iterator[tuple[str, str]]:
    known = ", ".join(image["platforms"]) or f"{image['verdict']} ({image['note']})"
    yield f"{image['image']}  {known}", ""
    if image["stale"]:
        yield "  an earlier answer, the registry does not respond", "yellow"
    if image["problem"]:
        yield f"  {image['problem']}", "red"


def _changed(before: Any, after: Any) -> list[str]:
    if before == after:
        return [*_terms(before), "(unchanged)"] if before else []
    return [*(f"- {term}" for term in _terms(before)), *(f"+ {term}" for term in _terms(after))]


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


def _taint(row: Json) -> str:
    """One architecture of nodes: its taint, and what covers it."""
    of = f"{row['architecture']} ({row['nodes']} {'node' if row['nodes'] == 1 else 'nodes'})"
    if row["taint"] is None:
        return f"{of}: no taint"
    taint = f"{of}: {row['taint']}" + (f" on {row['tainted']}" if row["tainted"] != row["nodes"] else "")
    if row["toleratedBy"] is not None:
        return f"{taint}: tolerated by {_toleration(row['toleratedBy'])}"
    return f"{taint}: {'gets a toleration' if row['added'] else 'not tolerated'}"


def _toleration(toleration: Json) -> str:
    parts = (toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
    return " ".join(part for part in parts if part)


def _next(waiting: Json) -> str:
    images = f" ({', '.join(waiting['images'])})" if waiting["images"] else ""
    until = f", for at most {waiting['until']}" if waiting["until"] else ""
    then = f", then {waiting['then']}" if waiting["then"] else ""
    return f"waits for {waiting['waitsFor']}{images}{until}{then}"
