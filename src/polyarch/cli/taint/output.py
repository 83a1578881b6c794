"""The output of ``polyarch taint``: tables for people, and documents.

Text and document are made of the same plan, and of the same result.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.cli.output.documents import document_text
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.cli.taint.configuration import TaintConfiguration
from polyarch.images.node_fit import IGNORED, FitResult
from polyarch.platforms import NodePlatform
from polyarch.taints.bootstrap import change_of
from polyarch.taints.plan import Blocker, BootstrapStep, Plan, StepState, TemplateEvaluation, counted
from polyarch.taints.writes import AppliedChange, FailedChange

PLAN_SCHEMA_VERSION: Final = "polyarch.dev/taint-plan/v1"
STYLES: Final = {StepState.DONE: "green", StepState.TODO: "", StepState.BLOCKED: "red"}
Document = dict[str, Any]

# -- a plan for people


def plan_text(plan: Plan, configured: TaintConfiguration, *, colour: bool) -> str:
    """Tables of architectures, templates, blockers and steps, with what else is worth knowing between them."""
    parts = [_heading(configured), _architectures(plan, colour), *_unusual_nodes(plan, colour)]
    parts += [_templates(plan, colour), *_surplus(plan, colour), *_node_templates(plan, colour)]
    parts += [*_blockers(plan.blockers, colour), steps_text(plan.steps, colour=colour)]
    return "\n".join(parts) + f"\nNot looked at: {IGNORED}.\n"


def steps_text(steps: tuple[BootstrapStep, ...], *, colour: bool) -> str:
    """The seven steps, each with how far it is."""
    rows = [
        Row(
            (
                f"{number} {step.id}",
                step.state.value,
                str(step.writes) if step.writes else "-",
                f"{step.title}{f' ({step.detail})' if step.detail else ''}",
            ),
            STYLES[step.state],
        )
        for number, step in enumerate(steps, 1)
    ]
    return table(("STEP", "STATE", "WRITES", "WHAT"), rows, colour=colour)


def blocker_text(blocker: Blocker) -> str:
    """One line."""
    place = f"{blocker.namespace}/{blocker.name}" if blocker.namespace else blocker.name
    return printable(f"{blocker.kind} {place}: {blocker.reason}: {blocker.detail}")


def _heading(configured: TaintConfiguration) -> str:
    settings = configured.settings
    where = {
        "file": "the file",
        "cluster": "ArchitectureTaints cluster",
        "flags": "the command line",
        "defaults": "the defaults",
    }[configured.source]
    primary = ", ".join(sorted(settings.primary))
    given = f", architectures {', '.join(sorted(settings.given))}" if settings.given else ""
    return (
        f"Configured by {where}: mode {settings.mode}, primary {primary}{given}, "
        f"taint {settings.key}=ARCHITECTURE:{settings.effect}\n"
    )


def _architectures(plan: Plan, colour: bool) -> str:
    tainted = plan.judgement.settings.tainted
    rows = [
        Row(
            (
                row.name or "unknown",
                str(row.nodes),
                str(row.tainted),
                str(row.to_write),
                "primary"
                if row.primary
                else ""
                if row.name in tainted
                else "not managed"
                if row.name
                else "left alone",
            )
        )
        for row in plan.architectures
    ]
    return table(("ARCHITECTURE", "NODES", "TAINTED", "TO WRITE", "NOTE"), rows, colour=colour)


def _unusual_nodes(plan: Plan, colour: bool) -> Iterator[str]:
    """Nodes that are left as they are although one might expect something else, and those that lose a taint of which
    polyarch has no record."""
    rows = [
        Row((each.node.metadata.name, each.decision.reason.value, each.decision.message))
        for each in plan.judgement.nodes
        if _is_unusual(each.decision.reason.value)
    ]
    rows += [
        Row((each.node.metadata.name, "TaintAdopted", f"it {change_of(each.node, each.decision)}; {_KEEPS_FOREIGN}"))
        for each in plan.judgement.nodes
        if each.decision.adopted
    ]
    if rows:
        yield table(("NODE", "REASON", "WHY"), rows, colour=colour)


_KEEPS_FOREIGN: Final = "spec.taint.ownership: recorded leaves it"


def _is_unusual(reason: str) -> bool:
    return reason in ("NodeArchitectureUnknown", "ForeignArchitectureTaint", "OptedOut")


def _templates(plan: Plan, colour: bool) -> str:
    rows = [
        Row(
            (
                str(each.template),
                "unknown" if each.architectures is None else ", ".join(each.architectures) or "nothing",
                ", ".join(each.decision.added),
                counted(each.fit.after) or "none",
                _note(each),
            ),
            "red" if each.fit.is_blocked else "",
        )
        for each in plan.judgement.templates
    ]
    return table(("TEMPLATE", "RUNS ON", "TOLERATES NEWLY", "NODES AFTERWARDS", "NOTE"), rows, colour=colour)


def _note(each: TemplateEvaluation) -> str:
    """What is not to be seen from the other columns."""
    decision = each.decision
    notes = [_decided(each), _unfit(each.fit)]
    if each.fit.refused:
        notes.append(each.fit.refused)
    elif not each.fit.before and not each.fit.after and not decision.unresolved:
        notes.append("no node takes it now either")
    return "; ".join(filter(None, notes))


def _decided(each: TemplateEvaluation) -> str:
    decision = each.decision
    if decision.unresolved:
        return decision.message
    return "" if decision.added or decision.reason == "Covered" else decision.reason.value


def _unfit(fit: FitResult) -> str:
    """The nodes on which it would crash."""
    if not fit.unfit:
        return ""
    return (
        f"the scheduler may also give it {counted(fit.unfit)}, where its images do not run: placement, node affinity "
        "or narrower tolerations keep it off"
    )


def _surplus(plan: Plan, colour: bool) -> Iterator[str]:
    rows = [
        Row(
            (
                str(each.pod.metadata.key),
                ", ".join(each.values),
                "unknown" if each.architectures is None else ", ".join(each.architectures) or "nothing",
            )
        )
        for each in plan.judgement.surplus
    ]
    if rows:
        yield table(("POD WITH WRONG TOLERATIONS", "FOR", "RUNS ON"), rows, colour=colour)


def _node_templates(plan: Plan, colour: bool) -> Iterator[str]:
    rows = [
        Row((f"{each.kind} {f'{each.namespace}/' if each.namespace else ''}{each.name}", each.detail))
        for each in plan.live.node_templates
    ]
    if rows:
        yield table(("TEMPLATE OF NODES", "WHAT IS MISSING"), rows, colour=colour)


def _blockers(blockers: tuple[Blocker, ...], colour: bool) -> Iterator[str]:
    if blockers:
        lines = [styled("BLOCKERS", "bold", colour=colour)]
        lines += [styled(blocker_text(each), "red", colour=colour) for each in blockers]
        yield "".join(f"{line}\n" for line in lines)


# -- a plan for programs


def plan_document(plan: Plan, configured: TaintConfiguration) -> Document:
    """The document; lists are there even if they are empty."""
    settings = configured.settings
    return {
        "schemaVersion": PLAN_SCHEMA_VERSION,
        "configuration": {
            "source": configured.source,
            "state": settings.state,
            "mode": settings.mode,
            "primaryArchitectures": sorted(settings.primary),
            "architectures": sorted(settings.given),
            "key": settings.key,
            "effect": settings.effect,
            "ownership": settings.ownership,
        },
        "architectures": [
            {
                "name": row.name,
                "primary": row.primary,
                "nodes": row.nodes,
                "tainted": row.tainted,
                "writes": row.to_write,
            }
            for row in plan.architectures
        ],
        "nodes": [
            {
                "name": each.node.metadata.name,
                "architecture": each.decision.architecture,
                "desired": str(each.decision.desired) if each.decision.desired is not None else None,
                "action": each.decision.kind.value,
                "reason": each.decision.reason.value,
                "message": each.decision.message,
                "adopts": list(map(str, each.decision.adopted)),
            }
            for each in plan.judgement.nodes
        ],
        "templates": [_template(each) for each in plan.judgement.templates],
        "wrongTolerations": [
            {
                "namespace": each.pod.metadata.namespace,
                "name": each.pod.metadata.name,
                "values": list(each.values),
                "architectures": None if each.architectures is None else list(each.architectures),
            }
            for each in plan.judgement.surplus
        ],
        "nodeTemplates": [
            {
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
                "architectures": list(each.architectures),
                "detail": each.detail,
                "patch": msgspec.to_builtins(each.patch),
                "command": each.command,
            }
            for each in plan.live.node_templates
        ],
        "blockers": [msgspec.to_builtins(each) for each in plan.blockers],
        "steps": steps_document(plan.steps),
        "ignored": IGNORED,
    }


def steps_document(steps: tuple[BootstrapStep, ...]) -> list[Document]:
    """The seven steps."""
    return [
        {"id": each.id, "title": each.title, "state": each.state.value, "writes": each.writes, "detail": each.detail}
        for each in steps
    ]


def _template(each: TemplateEvaluation) -> Document:
    decision, fit = each.decision, each.fit
    return {
        "kind": each.template.kind,
        "namespace": each.template.key.namespace,
        "name": each.template.key.name,
        "architectures": None if each.architectures is None else list(each.architectures),
        "adds": list(decision.added),
        "reason": decision.reason.value,
        "message": decision.message,
        "nodes": {"before": _plain(fit.before), "after": _plain(fit.after)},
        "unfitNodes": _plain(fit.unfit),
        "blockedFor": [platform.short_name for platform in fit.lost],
        "refused": fit.refused,
    }


def _plain(counts: Mapping[NodePlatform, int]) -> dict[str, int]:
    return {platform.short_name: number for platform, number in counts.items()}


# -- the result of bootstrap, apply and clean


CHANGE_SCHEMA_VERSION: Final = "polyarch.dev/taint-run/v1"


class BootstrapResult(msgspec.Struct, kw_only=True):
    """What came of a run; filled while it goes on, so that it can be printed wherever it ends."""

    dry_run: bool
    controller: bool = False
    changes: list[AppliedChange] = []
    failures: list[FailedChange] = []
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


def rendered(ended: BootstrapResult, form: str, *, colour: bool = False) -> str:
    """The text of a format."""
    return _text(ended, colour) if form == "text" else document_text(_document(ended), form)


def _text(ended: BootstrapResult, colour: bool) -> str:
    written = f"{len(ended.changes)} {'write' if len(ended.changes) == 1 else 'writes'}"
    lines = [f"{written}{' would be made' if ended.dry_run else ''}\n"]
    if ended.stopped:
        lines.append(f"{ended.stopped}\n")
    if ended.plan is not None:
        lines.append(steps_text(ended.plan.steps, colour=colour))
    return "".join(lines)


def _document(ended: BootstrapResult) -> dict[str, Any]:
    return {
        "schemaVersion": CHANGE_SCHEMA_VERSION,
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


def change_document(change: AppliedChange) -> dict[str, Any]:
    """A change as documents of the command line have it."""
    return {**change.ref.document(), "change": change.what}
