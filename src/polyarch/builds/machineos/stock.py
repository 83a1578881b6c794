"""Where the stock builder is at work, ours leaves machine OS images to it, and says so (BD-260). Pure.

Two builders would take each other's builds for their own: the names are the same.
"""

from math import floor
from typing import Any, Final

from polyarch.builds.facts.facts import Facts
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case, uid_of
from polyarch.builds.plan import conditions
from polyarch.builds.plan.document import Plan, Write
from polyarch.objects import Condition

REASON: Final = "StockBuilderRuns"
CURE: Final = "scale it to 0 replicas, or give polyarch's builder --machine-os=off"


def plan(facts: Facts, case: Case, deployment: str) -> Plan:
    """Nothing but a condition of the config that names the Deployment and what to do."""
    message = f"Deployment {deployment} builds this image, so polyarch does not: {CURE}."
    said = Condition(conditions.PROGRESSING, "False", REASON, message)
    stored: dict[str, Any] = dict(case.config.get("status") or {})
    known = stored.get("conditions") or []
    generation, now = facts.wish.generation, floor(facts.now)
    (ours,) = conditions.merged([said], known, generation=generation, now=now)
    status = {**stored, "conditions": [*(each for each in known if each.get("type") != said.type), ours]}
    write = Write(
        verb="status",
        kind=vocabulary.CONFIGS.kind,
        name=case.name,
        step="S10",
        uid=uid_of(case.config),
        body={"status": status},
    )
    changed = conditions.stored(stored, said.type) != ours
    return Plan(decision="Wait", reason=REASON, message=message, writes=(write,) if changed else ())
