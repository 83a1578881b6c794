"""The decision about the pod template of a DaemonSet (TN-050, TN-052).

The DaemonSet controller creates no pod for a node whose taint the template does not tolerate, so admission of pods
comes too late: the template itself gets the tolerations. It is judged as the pods that it stands for, by the same
rules, with two differences: the DaemonSet may opt out, too, and a template has no gate, so while an answer is missing
nothing is added. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from polyarch.objects import DaemonSet
from polyarch.pods.constraints import constraints_of
from polyarch.pods.images import images_of
from polyarch.taints import names
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import Reason
from polyarch.taints.decide.rules import STALE_FOR, Case, Facts, examine, missing, wanted
from polyarch.tolerations import Toleration

KIND: Final = "DaemonSet"
_NOTHING: Final[Mapping[str, str]] = {}


class TemplateFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The DaemonSet and what the decision about its template depends on, without the answers."""

    daemon_set: DaemonSet
    namespace: str
    """From the admission request, or the DaemonSet's own."""
    settings: TaintSettings
    namespace_labels: Mapping[str, str] = _NOTHING
    existing: frozenset[str] = frozenset()
    """Architectures of the cluster's nodes, normalised."""
    stale_for: float = STALE_FOR
    short_names_searched: bool = False


def examine_template(facts: TemplateFacts) -> Case:
    """The case of the template's pods, for ``rules.decide`` as for any pod."""
    daemon_set = facts.daemon_set
    of_pods = Facts(
        pod=daemon_set.template.pod(daemon_set.metadata, kind=KIND),
        namespace=facts.namespace,
        settings=facts.settings,
        namespace_labels=facts.namespace_labels,
        existing=facts.existing,
        stored=True,
        is_template=True,
        stale_for=facts.stale_for,
        short_names_searched=facts.short_names_searched,
    )
    rule = _rule(facts)
    return Case(facts=of_pods, rule=rule) if rule is not None else examine(of_pods)


def kept(case: Case, old: DaemonSet, recorded: Iterable[Toleration]) -> tuple[str, ...]:
    """The architectures whose tolerations we added to the stored template, and which the new one lacks, sorted.

    For a template whose images are not known now. If they are the stored one's, and its constraints as well, these
    tolerations were justified; to leave them out would start a rollout, and another one later (TN-053). ``recorded``:
    what the stored DaemonSet's annotation says we added.
    """
    before = old.template.pod(old.metadata, kind=KIND)
    images = images_of(before, searched=case.facts.short_names_searched)
    if (images, constraints_of(before), before.spec.os) != (case.images, case.constraints, case.pod.spec.os):
        return ()
    present, settings = before.spec.tolerations or (), case.settings
    ours = [each.value for each in recorded if each in present and each == settings.toleration(each.value)]
    return missing(wanted(ours, settings), case.pod.spec.tolerations)


def _rule(facts: TemplateFacts) -> Reason | None:
    """Why the template is not touched, before its pods are looked at."""
    metadata = facts.daemon_set.metadata
    if metadata.deletion_timestamp is not None:
        return Reason.TERMINATING
    if (metadata.annotations or _NOTHING).get(names.OPT_OUT) == names.DISABLED:
        return Reason.OPTED_OUT
    if facts.settings.templates == "ignore":
        return Reason.TEMPLATES_IGNORED
    return None
