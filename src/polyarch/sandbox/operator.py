"""polyarch itself in the sandbox: the objects of ``polyarch install``, applied to the sandbox.

The sandbox's nodes run the operator's pod, the operator deploys the other roles, and the nodes run these. What the
sandbox adds are ordinary values of an installation: fewer replicas, the way to its registry, and tolerations, so that
``--taint`` cannot keep polyarch from starting. Roles, flags and rights are nowhere in this package.
"""

from pathlib import Path
from typing import Final

import msgspec

from polyarch.installation import apply, objects, preflight, uninstall, wait
from polyarch.installation.apply import AppliedObject, ApplyRefused
from polyarch.installation.settings import (
    Builds,
    ComponentName,
    Image,
    InstallationSettings,
    Numa,
    OperatorPods,
    Placement,
    Registries,
    SecretName,
    Taints,
    Toleration,
    recorded,
)
from polyarch.installation.wait import WaitTimeout
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS, PODS, Resource
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.names import OPERATOR_SINGLETON, SCHEDULER, SCHEDULER_SINGLETON
from polyarch.objects import PartialObjectMetadata, Unstructured
from polyarch.placement import names
from polyarch.sandbox.control_plane import PROXY_VARIABLES, Layout
from polyarch.sandbox.errors import ProcessFailed, SandboxError, StepProgress
from polyarch.sandbox.real.configuration import REGISTRY
from polyarch.sandbox.real.images import pushed_image
from polyarch.sandbox.registry.seed import registries_conf
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.sandbox.versions import host_architecture

START_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.1
LOOPBACK_RANGE: Final = "127.0.0.0/8"
GLOBAL_PULL_SECRET: Final = "global-pull-secret"
"""The Secret in polyarch's namespace that, if it exists, serves as pull secret of every pod."""
EXPORTERS: Final = {
    "nodeGroups": [
        {
            "poolName": "all",
            "nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux"}},
            "config": {"infoRefreshMode": "PeriodicAndEvents"},
        }
    ]
}
"""Of a sandbox whose nodes have cells: one on every node, which looks as soon as the kubelet has written something."""
ACCOUNTS: Final = f"system:serviceaccount:{DEFAULT_NAMESPACE}:"
"""User names of polyarch's ServiceAccounts in the audit log begin so."""


def installation(layout: Layout, settings: Settings) -> InstallationSettings:
    """The values of the sandbox's installation."""
    proxies = {name: layout.environ[name] for name in PROXY_VARIABLES if name in layout.environ and not layout.real}
    pushed = pushed_image(layout.folder) if layout.real else None
    return InstallationSettings(
        image=Image(digest=pushed.digest if pushed is not None else ""),
        components=_components(settings),
        numa=Numa(configuration=EXPORTERS, scheduler={"replicas": _schedulers(settings)}),
        tolerations=tuple(Toleration(operator="Exists", effect=each) for each in ("NoSchedule", "NoExecute")),
        registries=_registries(layout, settings),
        operator=OperatorPods(replicas=settings.replicas, environment=proxies),
        placement=Placement(
            webhook_replicas=settings.replicas,
            controller_replicas=settings.replicas,
            handler_replicas=settings.replicas,
        ),
        taints=Taints(replicas=settings.replicas),
        builds=Builds(replicas=settings.replicas),
    )


def _registries(layout: Layout, settings: Settings) -> Registries:
    found = Registries(
        configuration=layout.folder.registries_conf.read_text(encoding="utf-8"),
        authorities=Path(settings.ca).read_text(encoding="utf-8") if settings.ca else "",
        global_pull_secret=SecretName(namespace=DEFAULT_NAMESPACE, name=GLOBAL_PULL_SECRET),
        # In a cluster polyarch never connects to a registry on loopback; here it must.
        allow_addresses=(LOOPBACK_RANGE,),
    )
    if not layout.real:
        return found
    own = settings.registries_conf
    text = Path(own).read_text(encoding="utf-8") if own else ""
    return msgspec.structs.replace(
        found,
        configuration=registries_conf(REGISTRY, text, own, insecure=False),
        authorities=f"{found.authorities}{Path(layout.pki.ca).read_text(encoding='utf-8')}",
        allow_addresses=(),
    )


def _components(settings: Settings) -> tuple[ComponentName, ...]:
    numa: tuple[ComponentName, ...] = ("numa",) if settings.numa is not None else ()
    builds: tuple[ComponentName, ...] = ("builds",) if settings.builds else ()
    return ("placement", *builds, *numa)


def _schedulers(settings: Settings) -> int:
    """The operator takes no more replicas of the scheduler than there are nodes for them."""
    return min(settings.replicas, sum(settings.nodes.get(each, 0) for each in _of_image(settings)))


def _of_image(settings: Settings) -> list[str]:
    """The architectures of polyarch's image: on real nodes, where it is made of this installation, the machine's."""
    return [host_architecture()] if settings.real else sorted(names.ARCHITECTURE_LABELS)


def write_values(layout: Layout, settings: Settings) -> None:
    """For ``polyarch install --values`` and ``helm install --values`` by hand, into any namespace of the sandbox."""
    values = installation(layout, settings)
    registries = msgspec.structs.replace(values.registries, global_pull_secret=None)
    values = msgspec.structs.replace(values, registries=registries)
    layout.folder.values.write_text(recorded(values) + "\n", encoding="utf-8")


def check(settings: Settings) -> None:
    """Raises SandboxError if no node of these settings can run polyarch's pods."""
    if not any(settings.nodes.get(each) for each in _of_image(settings)):
        first, known = _of_image(settings)[0], ", ".join(_of_image(settings))
        nodes = {first: 1} | {name: count for name, count in settings.nodes.items() if count}
        wanted = ",".join(f"{name}={count}" for name, count in nodes.items())
        raise SandboxError(
            f"polyarch runs on the sandbox's nodes, and none has an architecture of its image ({known}): "
            f"add one with --nodes {wanted}, or start the sandbox with --only control-plane"
        )


async def start(
    layout: Layout, client: Client, settings: Settings, progress: StepProgress
) -> tuple[AppliedObject, ...]:
    """Install polyarch, or what has changed of it; when this returns, the next pod is placed.

    Returns what was done with each object.
    """
    wanted = objects.documents(installation(layout, settings))
    if settings.numa is None:
        await _without_numa(client, progress)
    try:
        applied = await apply.apply_all(client, wanted, await preflight.gather(client, wanted))
        await wait.available(
            client,
            DEFAULT_NAMESPACE,
            switched_on={preflight.ref_of(each).resource for each in wanted},
            seconds=START_SECONDS,
            tell=progress.step,
            every=LOOK_SECONDS,
        )
    except (ApplyRefused, WaitTimeout) as error:
        raise ProcessFailed(f"polyarch in the sandbox: {error}") from error
    await _until_rolled_out(client, settings)
    await until_asked(client)
    return applied


async def _without_numa(client: Client, progress: StepProgress) -> None:
    """What component numa made goes while the operator still has that component: the nodes have no cells any more."""
    for kind, name, words in (
        (SCHEDULERS, SCHEDULER_SINGLETON, "the scheduler of NUMA cells"),
        (OPERATORS, OPERATOR_SINGLETON, "the exporters of NUMA zones"),
    ):

        async def is_gone(kind: Resource = kind, name: str = name) -> bool:
            try:
                await client.get(kind, name)
            except NotFound:
                return True
            return False

        if await is_gone():
            continue
        progress.step(f"removing {words}")
        await client.delete(kind, name)
        if not await until(is_gone, seconds=START_SECONDS):
            raise ProcessFailed(f"{kind.kind} {name} is not gone after {START_SECONDS:.0f} s: see the operator's log")


async def _until_rolled_out(client: Client, settings: Settings) -> None:
    """Wait until each of polyarch's Deployments has as many new pods as the settings say; after a change, placement is
    Available all the time."""
    behind: list[str] = []
    others = {SCHEDULER: _schedulers(settings)}

    async def are_new() -> bool:
        nonlocal behind
        found = await client.list(
            DEPLOYMENTS, namespace=DEFAULT_NAMESPACE, label_selector=names.CONTROLLER_LABEL, type=Unstructured
        )
        named = [(each.metadata.name, each) for each in found.items]
        behind = [name for name, each in named if not _is_rolled_out(each, others.get(name, settings.replicas))]
        return not behind

    if not await until(are_new, seconds=START_SECONDS):
        raise ProcessFailed(f"polyarch in the sandbox: not rolled out after {START_SECONDS:.0f} s: {', '.join(behind)}")


def _is_rolled_out(deployment: Unstructured, replicas: int) -> bool:
    wanted, status = deployment.document["spec"].get("replicas", 1), deployment.status
    seen = status.get("observedGeneration", 0) >= deployment.metadata.generation
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return wanted == replicas and seen and counts == {replicas}


async def remove(client: Client, progress: StepProgress) -> None:
    """Uninstall polyarch as ``polyarch uninstall`` does."""
    removal = await uninstall.remove(client, DEFAULT_NAMESPACE, tell=progress.step)
    if removal.left:
        raise ProcessFailed(f"uninstalling polyarch left {', '.join(removal.left)}")


async def until_asked(client: Client, *, asked: bool = True) -> None:
    """Wait until the API server asks the pod webhook, or no longer asks it: it learns of the change by a watch."""

    async def is_as_wanted() -> bool:
        return await _is_placed(client) == asked

    if not await until(is_as_wanted, seconds=START_SECONDS):
        raise ProcessFailed(
            f"the API server {'still asks' if not asked else 'does not ask'} polyarch about new pods after "
            f"{START_SECONDS:.0f} s; see the logs of kube-apiserver and egress"
        )


async def _is_placed(client: Client) -> bool:
    """Whether a pod that is created as a dry run gets polyarch's label."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "polyarch-sandbox-probe"},
        "spec": {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}]},
    }
    seen = await client.create(PODS, pod, namespace="default", type=PartialObjectMetadata, dry_run=True)
    return names.SCHEDULING_GATE_LABEL in (seen.metadata.labels or {})
