"""State of one process about one gated pod: waiting times, results of PATCHes, events already posted.

No decision needs it: a process that starts without it only counts waiting from its own first attempt (PL-330) and may
repeat an event. Kept per pod and dropped when the uid changes. Each part is changed by one module only.
"""

from typing import Final

from polyarch.kube.client.jsonpatch import Operation, add, pointer, remove, test
from polyarch.model.pod import Pod
from polyarch.oci.answer import Inspection
from polyarch.placement import names
from polyarch.placement.controller.patch_history import PatchHistory
from polyarch.placement.controller.told import Told
from polyarch.placement.controller.windows import Windows


class GatedPod:
    """Times are ``Clock.monotonic()``."""

    __slots__ = ("failed_once", "faults", "hold", "patches", "seen_at", "share", "told", "uid", "windows")

    def __init__(self, uid: str, now: float, *, standby_delay: float) -> None:
        self.uid = uid
        self.seen_at: Final = now
        self.windows = Windows()
        """How long it waits for images; kept by ``inquiry``."""
        self.failed_once: dict[str, Inspection] = NONE_FAILED
        """Images that may exist on nodes only and were asked for, by their text (PL-212); kept by ``inquiry``."""
        self.patches = PatchHistory()
        """Kept by ``releases``, as the next two are."""
        self.told = Told()
        self.hold = Hold()
        self.faults = Faults()
        """Kept by ``pod_controller``."""
        self.share = Share(standby_delay)
        """Kept by ``standby``."""


NONE_FAILED: Final[dict[str, Inspection]] = {}
"""Shared by all pods of which no such image has failed; replaced, not changed."""


class Hold:
    """Since when the pod is held: by policy, because its release is refused, or because a bug keeps it undecided."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since: float | None = None

    def begin(self, now: float) -> None:
        self.since = now if self.since is None else self.since

    def end(self) -> None:
        self.since = None


class Faults:
    """Passes over the pod that met a bug of ours, since the last one that did not (PL-306)."""

    __slots__ = ("count", "since")

    def __init__(self) -> None:
        self.count = 0
        self.since: float | None = None

    def met(self, now: float) -> float:
        """One more; the seconds since the first of them."""
        self.count += 1
        self.since = now if self.since is None else self.since
        return now - self.since

    def over(self) -> None:
        """A pass went well."""
        self.count, self.since = 0, None


class Share:
    """What a standby leaves of the pod to the leader (PL-530)."""

    __slots__ = ("delay", "waited")

    def __init__(self, delay: float) -> None:
        self.delay: Final = delay
        """How long it leaves the pod alone."""
        self.waited = False
        """The pod waited for an image since it was last left to the leader."""


def carries_gate(pod: Pod) -> bool:
    """Whether our gate is on the pod, whatever its labels say."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def bare_release(pod: Pod) -> tuple[Operation, ...]:
    """Takes our gate off a pod that a bug of ours keeps from being decided, and says so in the state label (PL-306)."""
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
