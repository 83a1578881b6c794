"""What one feature changes in a pod beside another feature: one answer, one patch. Pure.

The feature that is called first about a pod, at admission or when it removes its gate, takes a :class:`PodMutator` and
knows nothing else of the other one. So the pod costs one call of the API server and one PATCH, whatever is switched on,
and neither feature imports the other.

Both sides compare with the same pod, so both create the lists and maps that it lacks, and both count its list elements.
:func:`join_patches` makes one patch of the two.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from polyarch.kube.patches import Operation
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection

if TYPE_CHECKING:
    from polyarch.kube.admission import AdmissionRequest


GATES: Final = "/spec/schedulingGates"
ORDER: Final = ("/metadata/labels", "/metadata/annotations", "/spec/tolerations", "/spec/affinity", GATES)
"""The order of what is written to a pod, after the tests of its uid and version."""


class PodMutation(msgspec.Struct, frozen=True, gc=False):
    """What is added to an answer about a pod; by default nothing."""

    operations: tuple[Operation, ...] = ()
    """Without tests of the pod's uid and version, which the patch has that they are joined to."""
    warnings: tuple[str, ...] = ()
    denial: str = ""
    """Why the pod is refused, at admission; empty: it is not."""


NO_MUTATION: Final = PodMutation()


class MutationContext(msgspec.Struct, frozen=True, gc=False):
    """What the asking feature writes in the same patch."""

    gated: bool = False
    """The pod has its gate then, so it will ask again when it lifts that."""
    os: str = ""
    """The only ``kubernetes.io/os`` that it lets the pod run on, if it writes one."""


class PodMutator(Protocol):
    """A feature that adds to pods. ``answers`` are those that the asking one has, by the text of the reference.

    Neither method raises: what fails in one feature must not cost the pod the other one, so then nothing is added.
    """

    async def at_admission(
        self,
        request: "AdmissionRequest[Pod]",
        inspections: Mapping[str, Inspection],
        alongside: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        """To the answer of an admission. It may wait for registries ``until`` this time (monotonic clock)."""
        ...

    def at_release(self, pod: Pod, inspections: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        """To the PATCH that lifts the asking feature's gate from a stored pod; it never waits."""
        ...


def join_patches(first: Sequence[Operation], second: Sequence[Operation]) -> tuple[Operation, ...]:
    """One patch that does what both do, each of which was made for the same pod.

    Tests come first, then :data:`ORDER`; operations below the same of these members keep their order. Where both create
    a list or map it is created once, with the content of both. Indexes of ``second`` are counted after what ``first``
    removes from that list.
    """
    if not first or not second:
        return tuple(first or second)
    created = {each.path: each.value for each in second if each.op == "add" and each.path in ORDER}
    both = created.keys() & {each.path for each in first if each.op == "add"}
    whole = [_with(each, created[each.path]) if each.path in both else each for each in first]
    rest = [each for each in _after(first, second) if each.path not in both]
    return tuple(sorted((*whole, *rest), key=_rank))


def _rank(operation: Operation) -> int:
    for rank, member in enumerate(ORDER, 1):
        if operation.path.startswith(member):
            return rank
    return 0 if operation.op == "test" else len(ORDER) + 1


def _with(operation: Operation, content: Any) -> Operation:
    """Creates its list or map with this content, too."""
    own: Any = operation.value
    return msgspec.structs.replace(operation, value={**own, **content} if isinstance(own, dict) else [*own, *content])


def _after(first: Sequence[Operation], second: Sequence[Operation]) -> list[Operation]:
    """``second`` with the indexes of gates as they are after ``first``: the only list from which both remove."""
    removed = [index for each in first if each.op == "remove" and (index := _gate(each)) is not None]
    return [_moved(each, removed) for each in second] if removed else list(second)


def _moved(operation: Operation, removed: Sequence[int]) -> Operation:
    index = _gate(operation)
    if index is None:
        return operation
    _, _, rest = operation.path.removeprefix(f"{GATES}/").partition("/")
    index -= sum(each < index for each in removed)
    return msgspec.structs.replace(operation, path=f"{GATES}/{index}{f'/{rest}' if rest else ''}")


def _gate(operation: Operation) -> int | None:
    """The index of the gate that the operation is about."""
    if not operation.path.startswith(f"{GATES}/"):
        return None
    index = operation.path.removeprefix(f"{GATES}/").partition("/")[0]
    return int(index) if index.isdecimal() else None
