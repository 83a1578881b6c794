"""What ``polyarch taint bootstrap``, ``apply`` and ``clean`` say at their end, and the exit code that it means."""

from typing import Any, Final

import msgspec

from polyarch.cli.output.documents import document_text
from polyarch.cli.taint.plan_output import steps_document, steps_text
from polyarch.taints.plan import Blocker, Plan
from polyarch.taints.writes import Change, Failure

SCHEMA_VERSION: Final = "polyarch.dev/taint-run/v1"


class Ended(msgspec.Struct, kw_only=True):
    """What came of a run; filled while it goes on, so that it can be printed wherever it ends."""

    dry_run: bool
    controller: bool = False
    changes: list[Change] = []
    failures: list[Failure] = []
    accepted: tuple[Blocker, ...] = ()
    stopped: str = ""
    """Why tainting was stopped."""
    problem: str = ""
    """What did not happen in time."""
    plan: Plan | None = None

    @property
    def exit_code(self) -> int:
        if self.failures or self.problem:
            return 3
        if self.stopped:
            return 1
        left = self.plan.blockers if self.plan is not None else ()
        return 1 if any(each not in self.accepted for each in left) else 0


def rendered(ended: Ended, form: str, *, colour: bool = False) -> str:
    """The text of a format."""
    return _text(ended, colour) if form == "text" else document_text(_document(ended), form)


def _text(ended: Ended, colour: bool) -> str:
    written = f"{len(ended.changes)} {'write' if len(ended.changes) == 1 else 'writes'}"
    lines = [f"{written}{' would be made' if ended.dry_run else ''}\n"]
    if ended.stopped:
        lines.append(f"{ended.stopped}\n")
    if ended.plan is not None:
        lines.append(steps_text(ended.plan.steps, colour=colour))
    return "".join(lines)


def _document(ended: Ended) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "dryRun": ended.dry_run,
        "controller": ended.controller,
        "changes": [change_document(each) for each in ended.changes],
        "failures": [{**each.ref.document(), "problem": each.problem} for each in ended.failures],
        "accepted": [msgspec.to_builtins(each) for each in ended.accepted],
        "stopped": ended.stopped,
        "problem": ended.problem,
        "blockers": [msgspec.to_builtins(each) for each in ended.plan.blockers] if ended.plan is not None else [],
        "steps": steps_document(ended.plan.steps) if ended.plan is not None else [],
    }


def change_document(change: Change) -> dict[str, Any]:
    """A change as documents of the command line have it."""
    return {**change.ref.document(), "change": change.what}
