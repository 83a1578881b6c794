"""Run of the demo: create the pods and watch them, do the same without polyarch, and summarise."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from polyarch.sandbox import operator
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo import workloads
from polyarch.sandbox.demo.components import (
    BUILD_NAMESPACE,
    NUMA_NAMESPACE,
    REFUSED,
    TAINTS_NAMESPACE,
    RoundTrip,
    build,
    compare,
    grow,
    keep_report,
)
from polyarch.sandbox.demo.run import DemoRun, Listener, clean
from polyarch.sandbox.demo.workloads import (
    IMAGES,
    PULL_SECRET,
    WORKLOADS,
    AuditEvent,
    DemoRow,
    DemoWorkload,
    can_run,
    platforms,
)
from polyarch.sandbox.document import (
    Demo,
    DemoBuild,
    DemoCells,
    DemoGrowth,
    DemoImage,
    DemoOperator,
    DemoPod,
    DemoReport,
    PodWithoutPolyarch,
)
from polyarch.sandbox.tasks import together

WITH = "demo"
WITHOUT = "demo-without-polyarch"
AUDIT_SECONDS = 1.5
"""Wait for the audit log, which is written once a second."""


class DemoResult(msgspec.Struct, frozen=True):
    """The demo's outcome; ``failed`` names the pods that could run and did not."""

    demo: Demo
    failed: tuple[str, ...]


class DemoOutput(NamedTuple):
    """Whoever is shown the demo."""

    listener: Listener
    """Gets the rows of a namespace whenever one changed."""
    tell: Callable[[DemoOperator], None]
    """Called when polyarch is installed, and when it is uninstalled."""
    begin: Callable[[str], None]
    """Gets the name of what is done next."""


async def show(sandbox: Sandbox, audience: DemoOutput) -> DemoResult:
    """Run the whole demo on a running sandbox; it has polyarch afterwards.

    The pods without polyarch are created first, and come to their ends while polyarch is installed. When the same pods
    have been placed, polyarch is uninstalled, to see what is left of it, and installed again; then nodes join, a report
    is kept, and an image is built.
    """
    listener, tell, begin = audience
    architectures = sorted({architecture for _, architecture, _ in await sandbox.nodes()})
    begin("images are pushed")
    await sandbox.registry.seed(IMAGES, origin="demo")
    async with sandbox.client() as client:
        await together(
            clean(client, namespace) for namespace in (WITH, WITHOUT, TAINTS_NAMESPACE, BUILD_NAMESPACE, NUMA_NAMESPACE)
        )
        trip = await RoundTrip.begin(sandbox, client, besides=(WITH, WITHOUT))
        address = sandbox.registry.address
        begin("pods are created without polyarch, while it is installed")
        async with DemoRun(client, address, WITHOUT, listener).running() as alone:
            tell(await trip.install())
            begin("the same pods are created with polyarch")
            mark = sandbox.audit_log.stat().st_size
            async with DemoRun(client, address, WITH, listener).running() as placed:
                with_polyarch = await placed.settled()
            await asyncio.sleep(AUDIT_SECONDS)
            with_polyarch = _with_audit(with_polyarch, _audit(sandbox.audit_log, mark))
            listener(WITH, tuple(with_polyarch.values()))
            without = await alone.settled()
        begin("polyarch is uninstalled, to see what is left of it")
        tell(line := await trip.uninstall())
        begin("polyarch is installed again")
        await trip.install()
        await placed.hold_again()
        begin("nodes join, and are tainted before a pod is there")
        grown = await grow(sandbox, client)
        begin("a report is kept in the cluster: what could run on arm64")
        reported = await keep_report(client)
        begin("an image is built for every architecture, and after a change for one")
        built = await build(sandbox, client)  # before the cells: their pods fill the nodes
        if sandbox.state.settings.numa is not None:
            begin("pods with CPUs of their own are placed by NUMA cells, and by the stock scheduler")
        compared = await compare(sandbox, client)
    nodes = {name: architecture for name, architecture, _ in await sandbox.nodes()}
    return summarize(with_polyarch, without, nodes, architectures, line, grown, built, reported, compared)


def summarize(
    with_polyarch: Mapping[str, DemoRow],
    without: Mapping[str, DemoRow],
    nodes: Mapping[str, str],
    architectures: list[str],
    line: DemoOperator,
    grown: DemoGrowth,
    built: DemoBuild,
    reported: DemoReport,
    compared: DemoCells | None = None,
) -> DemoResult:
    """The document and the failed pods. ``nodes`` maps node names to architectures."""
    pods = [_pod(workload, with_polyarch[workload.name], without[workload.name], nodes) for workload in WORKLOADS]
    able = [workload.name for workload in WORKLOADS if can_run(workload, architectures)]
    failed = tuple(name for name in able if with_polyarch[name].phase != "Running" or with_polyarch[name].problem)
    broken = [name for name in able if without[name].problem]
    requests = sum(row.requests for row in with_polyarch.values())
    inline = sum(row.path == "inline" for row in with_polyarch.values())
    parts = [
        f"with polyarch {len(able) - len(failed)} of {len(able)} pods that can run do run",
        f"{inline} were placed at admission, for {requests} API requests in all",
        f"without it {len(broken)} of the same {len(able)} fail on the node they got",
    ]
    if len(able) < len(WORKLOADS):
        parts.append(f"{len(WORKLOADS) - len(able)} can run nowhere, and only with polyarch says so before it is tried")
    left = ", ".join(line.left) or "nothing"
    parts.append(
        f"the installation applied {line.installed} objects and its operator made {line.made}, "
        f"in {line.install_seconds:.1f} s; uninstall left {left}"
    )
    parts.append(
        f"{grown.joined} arm64 nodes joined with taints on: {grown.tainted} were tainted before a pod was there, "
        f"{grown.daemon_set_pods} DaemonSet pods run on them, {grown.kept_away} amd64 pods run elsewhere, and without "
        f"the configuration {', '.join(grown.left) or 'no node'} is tainted"
    )
    parts.append(
        f"an image was built natively for {', '.join(built.built)} and published as one index in {built.seconds:.1f} "
        f"s, and after a change for {', '.join(built.built_again)} in {built.seconds_again:.1f} s, with "
        f"{', '.join(built.reused) or 'nothing'} reused"
    )
    held = f", and {reported.in_the_way[0]} holds back the most" if reported.in_the_way else ""
    parts.append(
        f"the report that placement keeps was there after {reported.seconds:.1f} s: {reported.could_run} of the load "
        f"could run on {reported.target}{held}"
    )
    if compared is not None:
        parts.append(
            f"of {compared.pods} pods with CPUs of their own the stock scheduler sends {compared.stock.refused} to "
            f"kubelets that refuse them ({REFUSED}), the scheduler of cells {compared.cells.refused or 'none'}"
        )
    return DemoResult(Demo(pods, "; ".join(parts), line, grown, built, reported, compared), failed)


def _pod(workload: DemoWorkload, row: DemoRow, without: DemoRow, nodes: Mapping[str, str]) -> DemoPod:
    return DemoPod(
        name=workload.name,
        namespace=WITH,
        images=[DemoImage(image, platforms(image)) for image in workload.images],
        path=row.path,
        reason=row.reason,
        architectures=list(row.architectures),
        node=row.node,
        node_architecture=nodes.get(row.node, ""),
        phase=row.phase,
        milliseconds=row.times,
        requests=row.requests,
        without=PodWithoutPolyarch(without.node, nodes.get(without.node, ""), without.phase, without.problem),
    )


def _audit(log: Path, mark: int) -> list[AuditEvent]:
    """The audit events after the first ``mark`` bytes of the log."""
    with log.open("rb") as file:
        file.seek(mark)
        return workloads.read(file)


def _with_audit(rows: Mapping[str, DemoRow], events: list[AuditEvent]) -> dict[str, DemoRow]:
    """The rows with polyarch's requests for each pod, and the reason of pods without an annotation."""
    private = dict.fromkeys([PULL_SECRET], next(workload.name for workload in WORKLOADS if workload.private))
    requests = workloads.count(events, accounts=operator.ACCOUNTS, namespace=WITH, pods=rows, secrets=private)
    noted = workloads.decisions(events, namespace=WITH)
    return {
        name: msgspec.structs.replace(
            row, requests=requests[name], reason=row.reason or noted.get(name, "").partition(" ")[0]
        )
        for name, row in rows.items()
    }
