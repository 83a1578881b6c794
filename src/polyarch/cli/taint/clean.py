"""The work of ``polyarch taint clean``: everything of ours off nodes and pods, from anywhere.

It needs no controller and no kind ArchitectureTaints: what is ours stands on the nodes themselves. Where there is a
controller it is told first, so that it puts nothing back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages, confirm
from polyarch.cli.taint.output import change_document
from polyarch.clock import Clock, SystemClock
from polyarch.kube.resources import ObjectRef, few
from polyarch.objects import Pod
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.bootstrap import ControllerBootstrap, NotInTime, observed
from polyarch.taints.cluster import is_renewed
from polyarch.taints.names import LEASE
from polyarch.taints.removal import TaintRemover
from polyarch.taints.settings import PRESET_KEYS, Preset, TaintSettings
from polyarch.taints.writes import AppliedChange, FailedChange, KubernetesApi, StepResult, Writer

SCHEMA_VERSION: Final = "polyarch.dev/taint-clean/v1"
COMMAND: Final = "taint clean"
STOP_TIMEOUT: Final = 60.0
"""Seconds for the controller to see that it is to stop."""


@dataclass(frozen=True, kw_only=True)
class CleanOptions:
    """The command line."""

    dry_run: bool = False
    preset: Preset | None = None
    key: str | None = None
    adopt: bool = False
    templates: bool = False
    evict: bool = False
    include_bare: bool = False
    force: bool = False
    yes: bool = False


class CleanResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    dry_run: bool
    key: str = ""
    changes: list[AppliedChange] = []
    failures: list[FailedChange] = []
    left: tuple[ObjectRef, ...] = ()
    """What is still there by a fresh list, although it should not be."""
    foreign: tuple[str, ...] = ()
    """Nodes with taints of the same key that stay, because polyarch has no record of them."""
    bare: tuple[str, ...] = ()
    """Pods without an owner that carry our tolerations and were not evicted."""


def run_clean(asked: CleanOptions, cluster: ClusterFlags, chosen: Sequence[Output], *, messages: Messages) -> int:
    """Returns the exit code."""
    _check(asked)
    question = "This removes polyarch's taints from all nodes. Go on?"
    confirm(COMMAND, yes=asked.yes or asked.dry_run, question=question)
    cleaned = CleanResult(dry_run=asked.dry_run)
    try:
        asyncio.run(on_cluster(COMMAND, cluster, lambda client: TaintCleaner(client, asked, cleaned, messages).run()))
    except KeyboardInterrupt:
        messages.note(f"stopped; `polyarch {COMMAND}` goes on from where it is")
        raise
    emit(chosen, lambda form, colour: rendered(cleaned, form))
    if cleaned.foreign:
        messages.note(
            f"not removed: {few(cleaned.foreign)}: polyarch has no record of having put these there; give --adopt to "
            "remove them, too"
        )
    if cleaned.failures:
        raise CouldNotComplete(f"{COMMAND}: {few(cleaned.failures, 3)}")
    if cleaned.left:
        raise CouldNotComplete(f"{COMMAND}: still there by a fresh list: {few(cleaned.left)}; run it again")
    return 1 if asked.dry_run and cleaned.changes else 0


def _check(asked: CleanOptions) -> None:
    if asked.preset == "custom" and asked.key is None:
        raise UsageError("--preset custom needs --key: the key of the taint")
    if asked.key is not None and asked.preset not in (None, "custom"):
        raise UsageError(f"--preset {asked.preset} has the key {PRESET_KEYS[asked.preset]}; give --preset or --key")
    if asked.include_bare and not asked.evict:
        raise UsageError("--include-bare belongs to --evict")


class TaintCleaner:
    """One run; ``cleaned`` is filled while it goes on."""

    def __init__(
        self,
        client: KubernetesApi,
        asked: CleanOptions,
        cleaned: CleanResult,
        messages: Messages,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._asked = asked
        self._cleaned = cleaned
        self._messages = messages
        self._clock: Clock = clock or SystemClock()
        self._writer = Writer(client, dry_run=asked.dry_run, clock=self._clock, tell=self._tell)

    async def run(self) -> None:
        """The steps in their order; nothing of a later one is done while an earlier one may be undone."""
        live = await self._live()
        settings = self._settings(live)
        self._cleaned.key = settings.key
        await self._stop_controller(live)
        removal = TaintRemover(self._writer, settings)
        await self._step("registration and webhook", removal.registration)
        await self._step("taints of nodes", removal.taints)
        self._cleaned.foreign = await removal.foreign()
        await self._step("gates of pods", removal.gates)
        if self._asked.templates:
            await self._step("tolerations of DaemonSets", removal.templates)
        if self._asked.evict:
            await self._evict(removal)
        if not self._asked.dry_run:
            self._cleaned.left = await removal.left()

    async def _live(self) -> ArchitectureTaints | None:
        """The object; None also if the cluster does not have the kind any more."""
        return await ControllerBootstrap(self._client, clock=self._clock).found()

    def _settings(self, live: ArchitectureTaints | None) -> TaintSettings:
        """What decides what is ours: the object, unless the command line names another key. Without an object only what
        polyarch has recorded is; ``--adopt`` says otherwise."""
        asked = self._asked
        found = TaintSettings.of(live.spec) if live is not None else TaintSettings(ownership="recorded")
        if asked.key is not None or asked.preset is not None:
            preset = asked.preset or "custom"
            key = asked.key or PRESET_KEYS[preset]
            found = msgspec.structs.replace(found, preset=preset, key=key, ownership="recorded")
        return msgspec.structs.replace(found, ownership="adopt") if asked.adopt else found

    async def _stop_controller(self, live: ArchitectureTaints | None) -> None:
        """Has the controller put nothing back: told by its object, or dead."""
        dry_run = self._asked.dry_run
        renewed = not dry_run and await is_renewed(self._client, LEASE, clock=self._clock)
        if live is None:
            if renewed and not self._asked.force:
                raise CouldNotComplete(
                    f"{COMMAND}: a controller is running without the object {ARCHITECTURE_TAINTS.kind}, and would put "
                    "the taints back; stop `polyarch run taints` first, or give --force"
                )
            return
        delegated = ControllerBootstrap(self._client, clock=self._clock, dry_run=dry_run, tell=self._tell)
        if live.spec.get("state") != "removing" and live.metadata.deletion_timestamp is None:
            await delegated.remove()
        if not renewed:
            return
        try:
            await delegated.wait(observed, seconds=STOP_TIMEOUT)
        except NotInTime:
            if await is_renewed(self._client, LEASE, clock=self._clock) and not self._asked.force:
                raise CouldNotComplete(
                    f"{COMMAND}: the controller runs and has not seen spec.state: removing for {STOP_TIMEOUT:.0f} s; "
                    "look at its logs, or give --force"
                ) from None

    async def _step(self, what: str, work: Callable[[], Awaitable[StepResult]]) -> None:
        self._messages.detail(what)
        outcome = await work()
        self._cleaned.failures += outcome.failed

    async def _evict(self, removal: TaintRemover) -> None:
        pods = await removal.evictable()
        bare = await removal.evictable(bare=True)
        if bare:
            names = [str(pod.metadata.key) for pod in bare]
            said = "nobody replaces them" if self._asked.include_bare else "give --include-bare to evict them, too"
            self._messages.note(f"pods without an owner: {', '.join(names)}; {said}")
            if self._asked.include_bare:
                confirm(
                    COMMAND,
                    yes=self._asked.yes or self._asked.dry_run,
                    question=f"Evict {len(bare)} pods that nobody replaces?",
                )
                pods = [*pods, *bare]
            else:
                self._cleaned.bare = tuple(names)
        with self._messages.progress("evicting pods", max(len(pods), 1)):
            outcome = await removal.evict(pods, waiting=self._waits)
        self._cleaned.failures += outcome.failed

    def _waits(self, pod: Pod) -> None:
        self._messages.detail(f"{pod.metadata.key}: its PodDisruptionBudget does not allow an eviction yet")

    def _tell(self, change: AppliedChange) -> None:
        self._cleaned.changes.append(change)
        dry = " (dry run)" if self._asked.dry_run else ""
        self._messages.remark(f"{change.ref.resource.kind} {change.ref.key} {change.what}{dry}")


def rendered(cleaned: CleanResult, form: str) -> str:
    """The text of a format."""
    return _text(cleaned) if form == "text" else document_text(_document(cleaned), form)


def _text(cleaned: CleanResult) -> str:
    """What is left, and why, is told by the error that the command ends with."""
    number = len(cleaned.changes)
    if not number and not cleaned.failures and not cleaned.left:
        return "nothing to do: no node carries a taint of polyarch, and no pod its gate\n"
    written = f"{number} {'write' if number == 1 else 'writes'}"
    return f"{written}{' would be made' if cleaned.dry_run else ''}\n"


def _document(cleaned: CleanResult) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "dryRun": cleaned.dry_run,
        "key": cleaned.key,
        "changes": [change_document(each) for each in cleaned.changes],
        "failures": [{**each.ref.document(), "problem": each.problem} for each in cleaned.failures],
        "foreign": list(cleaned.foreign),
        "left": [each.document() for each in cleaned.left],
        "bare": list(cleaned.bare),
    }
