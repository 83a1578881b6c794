"""What is made for the Job of one architecture, and lives as long as it (BD-275, BD-284). Pure.

Jobs mount copies of the config's Secrets, in one form and under stock names, and the rendered MachineConfig as their
context. Neither is in a plan: ``preparations`` says what has to be copied from where, an effect reads and writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import Context, NameReference
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.jobs.architecture_job import manifests as job_manifests
from polyarch.builds.jobs.contract import configmap_name, context_name
from polyarch.builds.jobs.order import ArchitectureOrder, Identity, Image
from polyarch.builds.keys import handles
from polyarch.builds.machineos import rendering, vocabulary
from polyarch.builds.machineos.case import Case
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.making import Making, order
from polyarch.oci.reference import parse

PREPARE: Final = "prepare"
CREDENTIALS: Final = "credentials"
CONTEXT: Final = "context"
"""What ``body["as"]`` may say: registry credentials in their one form, or a MachineConfig as the context of a Job."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Labels and annotations of everything that is made for a build."""

    labels: dict[str, str]
    annotations: dict[str, str]


def marks(case: Case, execution: str, role: str, architecture: str = "", arch_key: str = "") -> Marks:
    """Ours and the stock ones (BD-081, BD-275)."""
    own = handles.marks(
        image_build=case.name, execution=execution, role=role, architecture=architecture, arch_key=arch_key
    )
    stock = vocabulary.ephemeral_labels(
        config=case.name, pool=case.pool_name, rendered=case.rendered_name, build=execution
    )
    labels = {key: handles.short(text, handles.LONGEST_LABEL) for key, text in stock.items()}
    longer = {key: text for key, text in stock.items() if len(text) > handles.LONGEST_LABEL}
    return Marks(labels={**own.labels, **labels}, annotations={**own.annotations, **longer})


def secrets(case: Case, build: str) -> dict[str, str]:
    """Name of the copy → the Secret that it is a copy of."""
    copies = vocabulary.ephemeral(build)
    found = {copies["base"]: case.pull_secret}
    return {**found, copies["final"]: case.push_secret} if case.push_secret else found


def preparations(case: Case, making: Making) -> tuple[Write, ...]:
    """The copies that the Job of an architecture mounts, made anew for every Job."""
    own = marks(case, making.execution, "")
    owner = {**making.owner, "controller": False, "blockOwnerDeletion": False}
    found = [
        _prepare(case, "Secret", copy, own, owner, {"as": CREDENTIALS, "of": secret})
        for copy, secret in secrets(case, making.execution).items()
    ]
    marked = _job_marks(case, making)
    context = {"as": CONTEXT, "of": case.rendered_name, "key": rendering.CONFIG_FILE}
    return (*found, _prepare(case, "ConfigMap", context_name(making.job), marked, making.owner, context))


def manifests(case: Case, making: Making, record: str) -> Sequence[Mapping[str, Any]]:
    """The inputs of the Job of an architecture, and the Job."""
    marked = _job_marks(case, making)
    identity = Identity(
        namespace=case.namespace,
        job=making.job,
        owners=(making.owner,),
        labels=marked.labels,
        annotations=marked.annotations,
        execution=making.execution,
        record=record,
    )
    wanted = _rendered(case, making, order(making, identity))
    made_elsewhere = context_name(making.job)
    return [each for each in job_manifests(wanted) if each["metadata"]["name"] != made_elsewhere]


def owner_patches(case: Case, execution: str, owners: Sequence[tuple[str, str]]) -> tuple[Write, ...]:
    """Copies that several Jobs mount have one owner reference for each Job, name and UID (BD-275)."""
    if not owners:
        return ()
    references = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": False} for name, uid in owners
    ]
    return tuple(
        Write(
            verb="patch",
            kind="Secret",
            namespace=case.namespace,
            name=copy,
            step="S4",
            how="merge",
            body={"metadata": {"ownerReferences": references}},
        )
        for copy in secrets(case, execution)
    )


def deletions(case: Case, jobs: Iterable[JobFacts], execution: str) -> tuple[Write, ...]:
    """The Jobs of a build and their inputs: their names are needed again."""
    found = []
    for job in sorted((each for each in jobs if each.run == execution), key=lambda each: each.name):
        if not job.deleting:
            found.append(
                Write(verb="delete", kind="Job", namespace=job.namespace, name=job.name, step="S3", uid=job.uid)
            )
        found += [
            Write(verb="delete", kind="ConfigMap", namespace=job.namespace, name=name, step="S3")
            for name in (configmap_name(job.name), context_name(job.name))
        ]
    return tuple(found)


def _job_marks(case: Case, making: Making) -> Marks:
    key = making.target.keys[making.architecture]
    return marks(case, making.execution, names.ARCH_ROLE, making.architecture, key)


def _prepare(
    case: Case, kind: str, name: str, own: Marks, owner: Mapping[str, Any], source: Mapping[str, str]
) -> Write:
    metadata = {
        "name": name,
        "namespace": case.namespace,
        "labels": own.labels,
        "annotations": own.annotations,
        "ownerReferences": [dict(owner)],
    }
    body = {"metadata": metadata, "source": dict(source)}
    return Write(verb="prepare", kind=kind, namespace=case.namespace, name=name, step="S4", body=body)


def _rendered(case: Case, making: Making, plain: ArchitectureOrder) -> ArchitectureOrder:
    """With the whole Containerfile, the images that it names, and the copies in place of what the config names."""
    machine = making.facts.wish.machine
    if machine is None:
        return plain
    pinned = {image: _pinned(image, making) for image in (machine.os_image, machine.extensions_image) if image}
    text = rendering.containerfile(
        rendering.Rendering(
            os_image=pinned[machine.os_image],
            extensions_image=pinned.get(machine.extensions_image, ""),
            pool=case.pool_name,
            rendered=case.rendered_name,
            kernel_type=machine.kernel_type,
            extensions=machine.extensions,
            user_text=plain.containerfile,
        )
    )
    copies = vocabulary.ephemeral(making.execution)
    spec = plain.spec
    output = msgspec.structs.replace(
        spec.output,
        push_secret=NameReference(copies["final"]) if case.push_secret else None,
        pull_secrets=[NameReference(copies["base"])],
    )
    context = Context(type="ConfigMap", config_map=NameReference(case.rendered_name))
    source = msgspec.structs.replace(spec.source, context=context)
    return msgspec.structs.replace(
        plain,
        spec=msgspec.structs.replace(spec, output=output, source=source),
        containerfile=text,
        images=[*plain.images, *(Image(written=(each,), pull=each) for each in sorted(pinned.values()))],
        context_data={},
    )


def _pinned(image: str, making: Making) -> str:
    name = handles.image(image)
    digests = {(pin.reference, pin.architecture): pin.digest for pin in making.target.pins}
    digest = digests.get((name, making.architecture))
    return f"{parse(name).name}@{digest}" if digest else name
