"""Our scheduling gate on a pod: whether it is there, and its removal without a decision (PL-306, PL-521). Pure."""

from polyarch.kube.patches import Operation, add, pointer, remove, test
from polyarch.objects import Pod
from polyarch.placement import names


def carries_gate(pod: Pod) -> bool:
    """Whether the pod has our gate, whatever its labels are."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def bare_release(pod: Pod) -> tuple[Operation, ...]:
    """Removes our gate from a pod that nobody can decide about, and sets its state label."""
    metadata = pod.metadata
    label = {names.SCHEDULING_GATE_LABEL: names.REMOVED}
    gates = [at for at, gate in enumerate(pod.spec.scheduling_gates or ()) if gate.name == names.GATE]
    path = "/spec/schedulingGates"
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        add("/metadata/labels", label)
        if metadata.labels is None
        else add(pointer("metadata", "labels", names.SCHEDULING_GATE_LABEL), names.REMOVED),
        *(
            operation
            for at in reversed(gates)
            for operation in (test(f"{path}/{at}/name", names.GATE), remove(f"{path}/{at}"))
        ),
    )
