"""One report of the cluster that this process runs in: facts, answers, sums, and the ConfigMap.

Each round reads everything anew, so nothing is kept between rounds and none depends on the one before. The ConfigMap
exists already, as RBAC cannot allow creating one by its name; it is patched, and only when something has changed."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC
from typing import Any, Final, NamedTuple, Protocol

from polyarch.builds.names import IMAGE_BUILDS
from polyarch.clock import Clock
from polyarch.images.pull_secrets import PullSecretNames, PullSecrets
from polyarch.images.resolver import LOW_PRIORITY_LOOKUPS, ImageInspector, LowPriorityLookups
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, Resource
from polyarch.kube.responses import ListResult
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import PartialObjectMetadata
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.facts import ClusterFacts
from polyarch.reports.document import Report
from polyarch.reports.facts import ImageInspections, ImageRecord, ReportFacts
from polyarch.reports.gather import NECESSARY, ClusterIdentity, ImageLookup, gather, plain, questions_of
from polyarch.reports.report import NoTarget, ReportOptions, make_report, targets_of
from polyarch.reports.summary import Summary, says_the_same, summary_of, text_of
from polyarch.reports.verdicts import to_ask
from polyarch.run.report_controller import SOON, ReportNotReady, Sums

LOOKUPS: Final = 300.0
"""Seconds in which images are asked for; those that are left then count as unknown until the next round."""
OF_COMPONENTS: Final = (TOPOLOGIES, IMAGE_BUILDS)
"""Not in the summary, and without its component a cluster grants no rights to a kind of it."""
NOBODY: Final = PullSecretNames("", ())


class ReportClient(Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: Any) -> ListResult[Any]: ...

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]: ...

    async def patch(
        self, resource: Resource, name: str, patch: MergePatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


class ReportResult(NamedTuple):
    """A report, and what the ConfigMap says of it."""

    report: Report
    summary: Summary


class ClusterReportGenerator:
    """``images`` is its own, so that its look-ups wait for nobody else's."""

    def __init__(
        self,
        *,
        client: ReportClient,
        facts: ClusterFacts,
        inspector: ImageInspector,
        secrets: PullSecrets,
        images: LowPriorityLookups,
        namespace: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._facts = facts
        self._inspector = inspector
        self._secrets = secrets
        self._images = images
        self._namespace = namespace
        self._clock = clock

    async def make(self) -> Sums:
        """The sums of a new report. Raises ``NotYet`` and ``KubernetesError``."""
        stored = await self._stored()
        now = self._clock.now().astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        settings = self._facts.table.spec
        place = ClusterIdentity(home=self._namespace, short_names_searched=settings.short_names_searched)
        facts = await gather(self._client, place, taken_at=now, without=OF_COMPONENTS)
        missing = [each for each in facts.unread if each in NECESSARY]
        if missing:
            raise ReportNotReady(f"not allowed to list {' and '.join(missing)}; the operator grants that")
        try:
            targets_of(facts)  # before registries are asked for nothing
        except NoTarget as error:
            raise ReportNotReady("no node names its architecture") from error
        answers, complete = await self._answers(facts, with_secrets=settings.images_secret_access == "byName")
        made = await asyncio.to_thread(_made, facts, answers, complete)
        if not says_the_same(stored, made.summary):
            data = {names.REPORT_KEY: text_of(made.summary)}
            await self._client.patch(
                CONFIGMAPS, names.REPORT_CONFIGMAP, MergePatch({"data": data}), namespace=self._namespace
            )
        return [
            (sums.target, str(each.verdict), each.weight.cores, each.workloads)
            for sums in made.report.sums
            for each in sums.verdicts
        ]

    async def _stored(self) -> str:
        """What the ConfigMap holds. It comes with the rights to make a report."""
        try:
            found = await self._client.get(CONFIGMAPS, names.REPORT_CONFIGMAP, namespace=self._namespace)
        except (NotFound, Forbidden) as error:
            place = f"ConfigMap {self._namespace}/{names.REPORT_CONFIGMAP}"
            raise ReportNotReady(
                f"{place} is not there or may not be read; the operator makes it", again=SOON
            ) from error
        return str((found.get("data") or {}).get(names.REPORT_KEY) or "")

    async def _answers(self, facts: ReportFacts, *, with_secrets: bool) -> tuple[ImageInspections, bool]:
        """What images say; False: some could not be asked for in time."""
        until = self._clock.monotonic() + LOOKUPS
        known: dict[ImageLookup, Inspection] = {}
        asked = await asyncio.to_thread(lambda: list(questions_of(facts, with_secrets=with_secrets)))
        complete = await self._ask(asked, known, until)
        running = await asyncio.to_thread(lambda: list(plain(to_ask(facts, _readings(known)))))
        complete = await self._ask(running, known, until) and complete
        return _readings(known), complete

    async def _ask(self, questions: Iterable[ImageLookup], known: dict[ImageLookup, Inspection], until: float) -> bool:
        missing: defaultdict[str, list[ImageLookup]] = defaultdict(list)
        for each in dict.fromkeys(questions):
            if each not in known:
                missing[each.namespace].append(each)

        async def one(question: ImageLookup) -> bool:
            source = question.source or NOBODY
            if self._inspector.peek(question.reference, self._secrets.lazy(source)) is None:
                if self._clock.monotonic() >= until:
                    return False
                if self._inspector.host_low(question.reference):
                    return False  # pods to come need what is left of its limit
            answer = await self._images.inspect(question.reference, source)
            if answer is not None:
                known[question] = answer
            return True

        async def all_of(namespace: str) -> bool:
            return all(await map_concurrently(one, missing[namespace], at_once=LOW_PRIORITY_LOOKUPS.shared))

        # Side by side, because the images of one namespace may answer nothing until the time is over.
        return all(await asyncio.gather(*map(all_of, missing)))


def _readings(known: dict[ImageLookup, Inspection]) -> ImageInspections:
    return ImageInspections(
        ImageRecord.of(each.image, answer, namespace=each.namespace) for each, answer in known.items()
    )


def _made(facts: ReportFacts, answers: ImageInspections, complete: bool) -> ReportResult:
    report = make_report(facts, answers, ReportOptions(), complete=complete)
    return ReportResult(report, summary_of(report))
