"""Takes over the fields of other field managers, so that applying removes those that are no longer wanted (PL-503).

Server-side apply removes a field only if its own manager applied it before. An object that ``kubectl apply`` made keeps
fields that nobody wants any more. So kubectl's entries in ``metadata.managedFields`` are renamed to ours first, as
client-go's ``csaupgrade`` does. Pure.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from polyarch.kube.client import jsonpatch
from polyarch.kube.client.patches import JsonPatch

KUBECTL: Final = frozenset(
    {"kubectl-client-side-apply", "kubectl-create", "kubectl-replace", "before-first-apply", "kubectl"}
)
"""The managers that kubectl's commands leave; not ``kubectl-edit`` and the like, by which people change fields."""


def adoption(live: Mapping[str, Any], *, manager: str, others: Collection[str] = KUBECTL) -> JsonPatch | None:
    """The patch that makes ``manager`` the owner of all fields of ``others``; None if there is nothing to take over.

    If ``manager`` has applied the object before, only the entries of the others are dropped: what it did not apply then
    is nobody's now, and stays. Entries of subresources (the status) are left alone. The patch fails if the object has
    changed since it was read.
    """
    metadata = live.get("metadata") or {}
    entries = list(metadata.get("managedFields") or ())
    theirs = [each for each in entries if each.get("manager") in others and not each.get("subresource")]
    if not theirs:
        return None
    kept = [each for each in entries if each not in theirs]
    if not any(each.get("manager") == manager and each.get("operation") == "Apply" for each in kept):
        # Two entries of one manager and operation are not allowed, so the fields of all are put together.
        fields = _union([each.get("fieldsV1") or {} for each in theirs])
        kept.append({**theirs[-1], "manager": manager, "operation": "Apply", "fieldsV1": fields})
    return JsonPatch(
        (
            jsonpatch.test("/metadata/resourceVersion", metadata.get("resourceVersion")),
            jsonpatch.replace("/metadata/managedFields", kept),
        )
    )


def _union(trees: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for tree in trees for name in tree)
    return {name: _union([tree[name] for tree in trees if name in tree]) for name in names}
