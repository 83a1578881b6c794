"""Plans of builds for people and programs (BD-004, BD-302). Pure.

The document is the planner's own value. For people, each architecture says why: what is taken from where, or which part
of its inputs changed since the last execution that knew it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.builds.keys import OUTLINES_FILE, KeyOutline, difference_sentence, key_differences, key_outline
from polyarch.builds.names import record_name
from polyarch.builds.plan.document import SCHEMA, BuildPlan, PlannedArchitecture
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled

GOOD: Final = frozenset({"UpToDate", "InProgress", "Repoint", "Retag"})
NOTES: Final = {"Normal": "note", "Warning": "warning"}
COLOURS: Final = {"Build": "yellow", "Reassemble": "yellow", "Invalid": "red", "Held": "red", "Wait": "yellow"}


class Former(NamedTuple):
    """What an earlier execution was made of, by architecture."""

    execution: str
    outlines: Mapping[str, KeyOutline]


class Shown(NamedTuple):
    """The plan of one build, and what earlier executions of it were made of, the newest first."""

    namespace: str
    name: str
    plan: BuildPlan
    former: Sequence[Former] = ()


def former(executions: Iterable[str], config_maps: Iterable[Mapping[str, Any]], namespace: str) -> list[Former]:
    """Of these executions those whose record says it; ``config_maps`` are documents."""
    texts = {
        each.get("metadata", {}).get("name", ""): (each.get("data") or {}).get(OUTLINES_FILE)
        for each in config_maps
        if each.get("metadata", {}).get("namespace", "default") == namespace
    }
    found = []
    for execution in executions:
        text = texts.get(record_name(execution))
        try:
            read = msgspec.json.decode(text, type=dict[str, dict[str, str]]) if text else {}
        except msgspec.DecodeError:
            continue  # somebody edited it; it only explains
        if read:
            found.append(Former(execution, read))
    return found


def rendered(shown: Sequence[Shown], form: str, *, keys: bool, jobs: bool, colour: bool) -> str:
    """The text of all plans, or the document: one plan, or ``plans`` of several."""
    if form == "text":
        return "\n".join(_text(each, keys=keys, jobs=jobs, colour=colour) for each in shown)
    documents = [_document(each) for each in shown]
    return document_text(documents[0] if len(documents) == 1 else {"schemaVersion": SCHEMA, "plans": documents}, form)


def _document(shown: Shown) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(shown.plan)
    document["writes"] = [{_camel(name): value for name, value in each.items()} for each in document["writes"]]
    said = {_camel(name): value for name, value in document.items() if name not in _INTERNAL}
    return {
        "schemaVersion": SCHEMA,
        "namespace": shown.namespace,
        "name": shown.name,
        **said,
    }


_INTERNAL: Final = ("questions",)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _text(shown: Shown, *, keys: bool, jobs: bool, colour: bool) -> str:
    made = shown.plan
    style = COLOURS.get(made.decision, "green")
    where = printable(f"{shown.namespace}/{shown.name}")
    lines = [f"{where}: {styled(made.decision, style, colour=colour)} ({made.reason})\n"]
    lines += [f"  {printable(made.message)}\n"] if made.message else []
    lines += [f"  execution {printable(made.execution)}\n"] if made.execution else []
    lines += [f"  {NOTES[each.type]}: {printable(each.message)}\n" for each in made.events if not each.execution]
    if made.per_architecture:
        rows = [Row((each.architecture, each.action, why(shown, each))) for each in made.per_architecture]
        printed = table(("ARCHITECTURE", "ACTION", "WHY"), rows, colour=colour)
        lines += [f"\n{printed}\n"]
    if made.index.action != "None":
        what = {"Push": "index to be pushed", "Exists": "index is there", "Single": "the child alone, without an index"}
        digest = f": {printable(made.index.digest)}" if made.index.digest else ""
        lines += [f"{what[made.index.action]}{digest}\n"]
    lines += [f"tags: {printable(', '.join(made.tags))}\n"] if made.tags else []
    lines += [f"looked at again in {made.requeue_after:.0f} s\n"] if made.requeue_after is not None else []
    if keys:
        documents = [
            {"architecture": a, "key": made.keys.get(a, ""), "inputs": d} for a, d in made.key_documents.items()
        ]
        lines += ["\n", manifest_text(msgspec.to_builtins(documents))]
    if jobs:
        bodies = [each.body for each in made.writes if each.verb == "create" and each.kind in ("Job", "ConfigMap")]
        lines += ["\n", manifest_text(msgspec.to_builtins(bodies))] if bodies else ["\nno Job would be made\n"]
    return "".join(lines)


def why(shown: Shown, each: PlannedArchitecture) -> str:
    """``key equal, from web-1a2b-3``, or ``containerfile changed since web-1a2b-3``."""
    if each.action in ("Reuse", "Adopt"):
        return f"key equal, from {each.source}" if each.source else each.message or "key equal"
    if each.action != "Build":
        return each.message or each.reason
    document = shown.plan.key_documents.get(each.architecture)
    for known in shown.former:
        before = known.outlines.get(each.architecture)
        if before is not None and document is not None:
            changed = difference_sentence(key_differences(before, key_outline(document)))
            return f"{changed} since {known.execution}" if changed else each.message or "no child with this key is left"
    return each.message or ("not built before" if document is not None else each.reason)
