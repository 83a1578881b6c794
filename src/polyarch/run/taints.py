"""``polyarch run taints``: taints nodes and adds tolerations (TN-003, TN-080). One replica leads."""

from typing import Any, Final

from polyarch.kube.admission import Route
from polyarch.kube.manager import Components, Leadership, Process, Role, Task, leader_check
from polyarch.kube.queue import WorkQueue
from polyarch.objects import Key, Pod
from polyarch.placement.patch import has_gate
from polyarch.run.logs import Verbosity
from polyarch.run.parts.controller_lease import lease_watch
from polyarch.run.parts.images import open_admission_lookups
from polyarch.run.parts.taints import TaintParts, open_pod_admission, open_taints
from polyarch.run.settings import RegistrySettings, TaintRoleSettings
from polyarch.run.tainting.nodes import node_duty
from polyarch.run.tainting.pods import pod_duty
from polyarch.run.tainting.status import status_duty
from polyarch.run.tainting.templates import template_duty
from polyarch.taints import names
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.webhook import TemplateAdmission


async def setup(process: Process) -> Components:
    """The role, built from the shared parts of its process. Without a certificate it serves no webhook."""
    parts = await process.share(open_taints)
    if not process.settings.cert_dir:
        return components(process, parts)
    pods = await process.share(open_pod_admission)
    templates = TemplateAdmission(
        facts=parts.facts,
        lookups=await process.share(open_admission_lookups),
        failed=parts.images.metrics.internal_errors.inc,
    )
    return components(process, parts, routes=(pods.route(), templates.route()))


def components(process: Process, parts: TaintParts, *, routes: tuple[Route[Any], ...] = ()) -> Components:
    """All replicas serve; only the leader writes to the cluster."""
    election = process.election(names.LEASE)
    is_leading = leader_check(election)
    recorder = process.recorder("polyarch.dev/taints")
    pods: WorkQueue[Key] = WorkQueue("unscheduled-pods", process.clock, metrics=process.metrics)
    templates: WorkQueue[Key] = WorkQueue("templates", process.clock, metrics=process.metrics)
    images = ImageWaiting(
        pods=pods,
        templates=templates,
        inspector=parts.images.registries,
        secrets=parts.images.secrets,
        metrics=parts.images.metrics,
        is_leading=is_leading,
        clock=process.clock,
        process_metrics=process.metrics,
    )
    parts.images.credentials_changed.append(images.credentials_changed)
    parts.images.registries.on_change(images.registries_changed)
    parts.metrics.unknown_images.set_function(lambda: float(images.unknown if is_leading() else 0))
    placement_lives = lease_watch(process)

    def is_held(pod: Pod) -> bool:
        return has_gate(pod) and placement_lives()

    of_pods = pod_duty(process, parts, images, pods, recorder, is_leading=is_leading, is_held=is_held)
    of_templates = template_duty(process, parts, images, templates, recorder, is_leading=is_leading)
    of_nodes = node_duty(
        process,
        parts,
        recorder,
        is_leading=is_leading,
        daemon_sets=of_templates.controller,
        unscheduled=of_pods.controller,
        running=of_pods.bound,
    )
    contributions = (
        of_nodes.report.contribution,
        of_pods.controller.contribution,
        of_templates.controller.contribution,
    )
    of_status = status_duty(process, parts, contributions, is_leading=is_leading)
    duties = (of_pods.duty, of_templates.duty, of_nodes.duty, of_status)
    background: dict[str, Task] = {
        "attempts": images.attempts.run,
        "pull secrets": images.reads.run,
        "changed pull secrets": images.look_for_new_secrets,
    }
    if election is None:  # it always leads, but gates are added only while the Lease is renewed (TN-046)
        background["lease"] = process.candidate(names.LEASE).run
    for duty in duties:
        background |= duty.background
    return Components(
        routes=routes,
        caches=tuple(parts.caches),
        controllers=tuple(controller for duty in duties for controller in duty.controllers),
        leaderships=(
            Leadership(
                election=election,
                controllers=tuple(controller for duty in duties for controller in duty.led_controllers),
                background={name: task for duty in duties for name, task in duty.led.items()},
            ),
        ),
        background=background,
        recorders=(recorder,),
    )


ROLE: Final = Role(name="taints", setup=setup, settings=(RegistrySettings, TaintRoleSettings, Verbosity))
