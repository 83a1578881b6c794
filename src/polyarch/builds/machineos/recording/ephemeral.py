"""What is made for the Job of one architecture, and lives as long as it (BD-275, BD-284). Pure.

Jobs mount copies of the config's Secrets, in one form and under stock names, and of the rendered MachineConfig their
context is made. Neither is in a plan: ``preparations`` says what has to be copied from where, an effect reads and
writes it.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import NameReference
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.jobs.architecture_job import manifests as job_manifests
from polyarch.builds.jobs.contract import configmap_name
from polyarch.builds.jobs.order import ArchitectureOrder, Given, Identity, Image
from polyarch.builds.keys import handles
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case
from polyarch.builds.machineos.material import rendering
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.making import Making, order
from polyarch.oci.reference import parse

CREDENTIALS: Final = "credentials"
CONTEXT: Final = "context"
FILE: Final = "file"
"""What ``body["as"]`` may say: registry credentials in their one form, a MachineConfig as the context of a Job, or a
file of it."""
CONTAINERFILE: Final = "Containerfile"
TRUST: Final = "additionaltrustbundle"
_CONTAINERS_FILES: Final = {"etc-policy": "policy.json", "etc-registries": "registries.conf"}
"""Copy → the file of ``/etc/containers`` that it holds, where nodes have one."""


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
    own = _build_marks(case, making)
    owner = {**making.owner, "controller": False, "blockOwnerDeletion": False}
    copies = vocabulary.ephemeral(making.execution)
    found = [
        _prepare(case, "Secret", copy, own, owner, {"as": CREDENTIALS, "of": secret})
        for copy, secret in secrets(case, making.execution).items()
    ]
    context = {"as": CONTEXT, "of": case.rendered_name, "key": rendering.CONFIG_FILE}
    found.append(_prepare(case, "ConfigMap", copies["mc"], own, owner, context))
    for copy, file in _CONTAINERS_FILES.items():
        source = {"as": FILE, "of": case.rendered_name, "path": f"/etc/containers/{file}", "key": file}
        found.append(_prepare(case, "ConfigMap", copies[copy], own, owner, source))
    if case.trust:
        bundle = base64.b64encode(case.trust.encode()).decode()
        found.append(_config_map(case, copies[TRUST], own, owner, {"binaryData": {rendering.TRUST_FILE: bundle}}))
    texts = {"data": _containerfiles(case, making)}
    return (*found, _config_map(case, copies["containerfile"], own, owner, texts))


def manifests(case: Case, making: Making, record: str) -> Sequence[Mapping[str, Any]]:
    """The inputs of the Job of an architecture, and the Job."""
    return job_manifests(_rendered(case, making, record))


def owner_patches(case: Case, execution: str, owners: Sequence[tuple[str, str]]) -> tuple[Write, ...]:
    """Copies that several Jobs mount have one owner reference for each Job, name and UID (BD-275)."""
    if not owners:
        return ()
    references = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": False} for name, uid in owners
    ]
    copies = vocabulary.ephemeral(execution)
    maps = ["containerfile", "mc", *([TRUST] if case.trust else [])]
    shared = [*(("Secret", copy) for copy in secrets(case, execution)), *(("ConfigMap", copies[each]) for each in maps)]
    return tuple(
        Write(
            verb="patch",
            kind=kind,
            namespace=case.namespace,
            name=copy,
            step="S4",
            how="merge",
            body={"metadata": {"ownerReferences": references}},
        )
        for kind, copy in shared
    )


def deletions(case: Case, jobs: Iterable[JobFacts], execution: str) -> tuple[Write, ...]:
    """The Jobs of a build and their inputs: their names are needed again."""
    found = []
    for job in sorted((each for each in jobs if each.run == execution), key=lambda each: each.name):
        if not job.deleting:
            found.append(
                Write(verb="delete", kind="Job", namespace=job.namespace, name=job.name, step="S3", uid=job.uid)
            )
        inputs = configmap_name(job.name)
        found.append(Write(verb="delete", kind="ConfigMap", namespace=job.namespace, name=inputs, step="S3"))
    return tuple(found)


def _build_marks(case: Case, making: Making) -> Marks:
    return _entitled(marks(case, making.execution, ""), making)


def _job_marks(case: Case, making: Making) -> Marks:
    key = making.target.keys[making.architecture]
    return _entitled(marks(case, making.execution, names.ARCH_ROLE, making.architecture, key), making)


def _entitled(found: Marks, making: Making) -> Marks:
    machine = making.inputs.machine
    has = {f"{vocabulary.ENTITLED}{each}": "" for each in (machine.entitlements if machine is not None else ())}
    return msgspec.structs.replace(found, annotations={**found.annotations, **has})


def _prepare(
    case: Case, kind: str, name: str, own: Marks, owner: Mapping[str, Any], source: Mapping[str, str]
) -> Write:
    body = {"metadata": _metadata(case, name, own, owner), "source": dict(source)}
    return Write(verb="prepare", kind=kind, namespace=case.namespace, name=name, step="S4", body=body)


def _config_map(
    case: Case, name: str, own: Marks, owner: Mapping[str, Any], content: Mapping[str, Mapping[str, str]]
) -> Write:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(case, name, own, owner),
        **content,
    }
    return Write(verb="patch", kind="ConfigMap", namespace=case.namespace, name=name, step="S4", how="apply", body=body)


def _metadata(case: Case, name: str, own: Marks, owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": case.namespace,
        "labels": own.labels,
        "annotations": own.annotations,
        "ownerReferences": [dict(owner)],
    }


def _containerfiles(case: Case, making: Making) -> dict[str, str]:
    """What is built, for people and their tools: a text for each architecture, since each names its own images."""
    architectures = making.target.architectures
    texts = {each: _text(case, msgspec.structs.replace(making, architecture=each)) for each in architectures}
    if len(texts) == 1:
        return {CONTAINERFILE: texts[architectures[0]]}
    return {f"{CONTAINERFILE}.{each}": text for each, text in texts.items()}


def _text(case: Case, making: Making) -> str:
    """The whole Containerfile of an architecture."""
    own, machine = making.inputs.per_architecture[making.architecture], making.inputs.machine
    if machine is None:
        return own.containerfile
    return rendering.containerfile(
        rendering.Rendering(
            os_image=_pinned(machine.os_image, making),
            extensions_image=_pinned(machine.extensions_image, making) if machine.extensions_image else "",
            pool=case.pool_name,
            rendered=case.rendered_name,
            kernel_type=machine.kernel_type,
            extensions=machine.extensions,
            has_trust=bool(case.trust),
            user_text=own.containerfile,
        )
    )


def _rendered(case: Case, making: Making, record: str) -> ArchitectureOrder:
    """With the whole Containerfile, the images that it names, and the copies in place of what the config names."""
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
    plain, machine = order(making, identity), making.inputs.machine
    if machine is None:
        return plain
    copies, spec = vocabulary.ephemeral(making.execution), plain.spec
    pinned = {_pinned(each, making) for each in (machine.os_image, machine.extensions_image) if each}
    output = msgspec.structs.replace(
        spec.output,
        push_secret=NameReference(copies["final"]) if case.push_secret else None,
        pull_secrets=[NameReference(copies["base"])],
    )
    trusted = "\n".join(each for each in (plain.settings.trust_bundle, case.trust) if each)
    given = Given(
        context=(copies["mc"], *((copies[TRUST],) if case.trust else ())),
        containers=tuple(copies[each] for each in _CONTAINERS_FILES),
        entitled=tuple(each for each in machine.entitled if each.name in machine.entitlements),
    )
    return msgspec.structs.replace(
        plain,
        spec=msgspec.structs.replace(spec, output=output),
        containerfile=_text(case, making),
        images=[*plain.images, *(Image(written=(each,), pull=each) for each in sorted(pinned))],
        given=given,
        settings=msgspec.structs.replace(plain.settings, trust_bundle=trusted),
    )


def _pinned(image: str, making: Making) -> str:
    name = handles.image(image)
    digests = {(pin.reference, pin.architecture): pin.digest for pin in making.target.pins}
    digest = digests.get((name, making.architecture))
    return f"{parse(name).name}@{digest}" if digest else name
