"""Reports for tests of what is printed: every part filled in, of any size, the same each time."""

from itertools import islice

from polyarch.reports.document import (
    Blocker,
    Change,
    Comparison,
    CurvePoint,
    Drift,
    FeatureSection,
    Group,
    GroupShare,
    NamedPods,
    NodeDrift,
    NodeKind,
    PartRow,
    PlacementPart,
    Reason,
    Report,
    Saving,
    ShareChange,
    Source,
    Suggestion,
    TargetSums,
    TargetVerdict,
    Verdict,
    VerdictSum,
    Weight,
    WorkloadRow,
)

TARGETS = ("amd64", "arm64")
APPLICATIONS = (
    "checkout",
    "search",
    "catalogue",
    "payments",
    "ledger",
    "mailer",
    "gateway",
    "reports",
    "sessions",
    "feed",
)
KINDS = ("Deployment", "Deployment", "Deployment", "StatefulSet", "CronJob", "DaemonSet")
HOSTILE = "<img src=x onerror=alert(1)>'\"&</script><script>alert(2)</script>\u202e\x00\ud800"
"""Markup of several kinds, the end of a script, a turn of the writing direction, NUL and half a character."""


def _verdict(number: int) -> Verdict:
    """Of the second target; fifteen in a row hold every kind."""
    if number % 15 == 14:
        return Verdict.UNKNOWN
    return (Verdict.READY, Verdict.RUNS, Verdict.IMAGE, Verdict.READY, Verdict.CONSTRAINED)[number % 5]


def _image(number: int) -> str:
    return f"registry.example.com/{APPLICATIONS[number % 10]}/service-{number:03}:v1.{number % 40}.{number % 7}"


def _reasons(verdict: Verdict, image: str) -> tuple[Reason, ...]:
    match verdict:
        case Verdict.IMAGE:
            return (Reason("ImageLacksTarget", f"{image} has no arm64, only amd64.", image=image),)
        case Verdict.UNKNOWN:
            said = f"{image} could not be asked about: registry.example.com answered 401 Unauthorized."
            return (Reason("ImageUnknown", said, image=image),)
        case Verdict.CONSTRAINED:
            path = "spec.template.spec.nodeSelector"
            said = "The node selector excludes arm64."
            return (Reason("NodeSelector", said, path=path, value="kubernetes.io/arch=amd64"),)
    return ()


def _workload(number: int, count: int) -> WorkloadRow:
    verdict = _verdict(number)
    application = APPLICATIONS[(number * 7 + number // 10) % 10]
    replicas = 1 + number % 9
    cores = round((count - number) * 32 / count, 3)
    images = (_image(number * 2 % 800), f"registry.example.com/sidecars/proxy:v{number % 3}")
    return WorkloadRow(
        namespace=f"team-{(number * 13 + number // 40) % 40:02}",
        kind=KINDS[number % 6],
        name=f"{application}-worker-{number:04}",
        team=("shop", "search", "platform")[number % 3],
        weight=Weight(cores, replicas * (512 << 20), replicas, replicas),
        images=images,
        runs_on=("amd64", "arm64") if verdict is Verdict.RUNS else ("amd64",),
        answers=(
            TargetVerdict("amd64", Verdict.RUNS, pods=replicas),
            TargetVerdict(
                "arm64",
                verdict,
                _reasons(verdict, images[0]),
                pods=replicas if verdict is Verdict.RUNS else 0,
                blocks_nodes=verdict is Verdict.IMAGE and KINDS[number % 6] == "DaemonSet",
            ),
        ),
        drift=(Drift("main", f"{images[0]}@sha256:{'5' * 64}", images[0], ("amd64",), ("amd64", "arm64")),)
        if number % 50 == 3
        else (),
    )


def _weight(workloads: list[WorkloadRow]) -> Weight:
    weights = [each.weight for each in workloads]
    return Weight(
        round(sum(each.cores for each in weights), 3),
        sum(each.memory_bytes for each in weights),
        sum(each.replicas for each in weights),
        sum(each.pods for each in weights),
    )


def _with(verdict: Verdict, place: int, workloads: list[WorkloadRow]) -> list[WorkloadRow]:
    return [each for each in workloads if each.answers[place].verdict is verdict]


def _share(verdicts: set[Verdict], place: int, workloads: list[WorkloadRow]) -> float | None:
    whole = _weight(workloads).cores
    some = sum(each.weight.cores for each in workloads if each.answers[place].verdict in verdicts)
    return some / whole if whole else None


COULD = {Verdict.RUNS, Verdict.READY}
FREE = COULD | {Verdict.CONSTRAINED}


def _group(name: str, workloads: list[WorkloadRow]) -> Group:
    shares = tuple(
        GroupShare(
            target,
            _share({Verdict.RUNS}, place, workloads),
            _share(COULD, place, workloads),
            _share(FREE, place, workloads),
            tuple(len(_with(verdict, place, workloads)) for verdict in Verdict),
        )
        for place, target in enumerate(TARGETS)
    )
    return Group(name, _weight(workloads), len(workloads), shares)


def _groups(of: str, workloads: list[WorkloadRow]) -> tuple[Group, ...]:
    names = sorted({str(getattr(each, of)) for each in workloads})
    return tuple(_group(name, [each for each in workloads if getattr(each, of) == name]) for name in names)


def report(count: int) -> Report:
    """One of so many workloads."""
    workloads = [_workload(number, count) for number in range(count)]
    whole = _weight(workloads).cores
    held = _with(Verdict.IMAGE, 1, workloads)
    by_image: dict[str, list[WorkloadRow]] = {}
    for each in held:
        by_image.setdefault(each.images[0], []).append(each)
    heaviest = sorted(by_image.items(), key=lambda item: -_weight(item[1]).cores)
    could = (_share(FREE, 1, workloads) or 0) * whole
    points = [CurvePoint(0, "", round(could, 3), could / whole if whole else 0)]
    for image, kept in heaviest:
        could += _weight(kept).cores
        points.append(CurvePoint(len(points), image, round(could, 3), min(could / whole, 1)))
    sums = tuple(
        TargetSums(
            target=target,
            nodes=(12, 4)[place],
            verdicts=tuple(
                VerdictSum(verdict, len(_with(verdict, place, workloads)), _weight(_with(verdict, place, workloads)))
                for verdict in Verdict
            ),
            runs_share=_share({Verdict.RUNS}, place, workloads),
            ready_share=_share(COULD, place, workloads),
            unconstrained_share=_share(FREE, place, workloads),
            curve=tuple(points) if place else (),
            blocking_daemon_sets=tuple(
                f"{each.namespace}/{each.name}" for each in islice(held, 40) if place and each.answers[1].blocks_nodes
            ),
            saving=Saving(84.5, 444.13, "84.5 cores × (0.0416 − 0.0336) × 657 h") if place else None,
        )
        for place, target in enumerate(TARGETS)
    )
    blockers = tuple(
        Blocker(
            target="arm64",
            image=image,
            platforms=("amd64",),
            alone=_weight(kept),
            together=Weight(),
            workloads=tuple(f"{each.namespace}/{each.kind}/{each.name}" for each in kept),
            suggestion=Suggestion("publish", "", "Publish it for arm64.")
            if number % 2
            else Suggestion("tag", f"{image}-1", "This tag has arm64."),
        )
        for number, (image, kept) in enumerate(heaviest)
    )
    return Report(
        source=Source("cluster", "production", "2026-11-23T12:00:00Z"),
        targets=TARGETS,
        basis="cores",
        weight=_weight(workloads),
        sums=sums,
        nodes=(NodeKind("amd64", 12, 768, 512.25, 3 * count), NodeKind("arm64", 4, 256, 64.5, count)),
        workloads=tuple(workloads),
        blockers=blockers,
        namespaces=_groups("namespace", workloads),
        team_label="team",
        teams=_groups("team", workloads),
        placement=PlacementPart(
            (NamedPods("Constrained", count, ("team-00/checkout-0",)), NamedPods("Neutral", 3, ("team-01/debug",))),
            (NamedPods("Held", 7, tuple(f"team-02/mailer-{number}" for number in range(5)), "Nobody could be asked."),),
        ),
        numa=FeatureSection((PartRow("Nodes with single-numa-node", 4, (), "Nine whole zones are free."),)),
        node_drift=(NodeDrift("arm-1", "arm64", ("team-03/feed-1",), ("Its image has no arm64 any more.",)),),
        comparison=Comparison(
            "2026-10-01T12:00:00Z",
            (ShareChange("arm64", 0.31, sums[1].ready_share),),
            (Change("arm64", "team-01/Deployment/search-worker-0003", "image", "ready", 12.0),),
            (Change("arm64", "team-02/Deployment/feed-worker-0007", "ready", "constrained", 3.5),),
            (),
            (Change("arm64", "team-09/Job/gone", "ready", "", 0.5),),
        ),
        notes=("Not allowed to list cronjobs.batch: they are left out.",),
    )
