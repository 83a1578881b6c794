"""What the Job of a machine OS build mounts, and its Containerfile. Pure.

The Containerfile begins with a stage ``configs`` that applies the rendered MachineConfig to the pinned OS image;
what is installed comes from the extensions image of the same release. The user's text goes on in it, or begins
stages.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import NameReference
from polyarch.builds.containerfile import normalised_text
from polyarch.builds.facts.build_facts import BuildStep, JobFacts
from polyarch.builds.facts.objects import HELPERS
from polyarch.builds.jobs.contract import configmap_name
from polyarch.builds.jobs.manifests import architecture_manifests as job_manifests
from polyarch.builds.jobs.spec import ArchitectureJobSpec, JobMetadata, MachineJobMounts, PulledImage
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import MachineOSConfigFacts
from polyarch.builds.names import MAX_LABEL, ObjectLabels, canonical_image, object_labels, shortened
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.kind import JobInputs, architecture_job_spec
from polyarch.builds.plan.request import LARGE_PAGES
from polyarch.oci.auth.credentials import MalformedDocument, member, read_object
from polyarch.oci.reference import parse

STAGE: Final = "configs"
CONFIG_FILE: Final = "machineconfig.json.gz"
"""The rendered MachineConfig in the build context: gzip, then base64."""
TRUST_FILE: Final = "openshift-config-user-ca-bundle.crt"
"""The CAs that nodes trust in addition, in the build context."""
REALTIME: Final = "realtime"

EXTENSION_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ipsec": ("NetworkManager-libreswan", "libreswan"),
    "kerberos": ("krb5-workstation", "libkadm5"),
    "kernel-devel": ("kernel-devel", "kernel-headers"),
    "sandboxed-containers": ("kata-containers",),
    "sysstat": ("sysstat",),
    "two-node-ha": ("pacemaker", "pcs", "fence-agents-all"),
    "usbguard": ("usbguard",),
    "wasm": ("crun-wasm",),
}
"""Extension → the packages that it stands for; one that is not listed is a package itself."""
_KERNEL: Final = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra")
_KERNELS: Final[Mapping[str, tuple[str, ...]]] = {
    REALTIME: ("kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-core", "kernel-rt-modules-extra"),
    LARGE_PAGES: ("kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"),
}
_PACKAGES: Final = "/usr/share/rpm-ostree/extensions/"
"""Where an extensions image has them."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """What the text is made of. Images are pinned: ``repository@digest`` of the child."""

    os_image: str
    extensions_image: str = ""
    pool: str
    rendered: str
    """Name of the rendered MachineConfig."""
    kernel_type: str = ""
    extensions: tuple[str, ...] = ()
    has_trust: bool = False
    user_text: str = ""


def rendered_containerfile(given: Rendering) -> str:
    """The whole text."""
    lines = [
        f"FROM {given.os_image} AS {STAGE}",
        f"COPY {CONFIG_FILE} /tmp/{CONFIG_FILE}",
        (
            "RUN set -e; mkdir -p /etc/machine-config-daemon; "
            f"base64 -d /tmp/{CONFIG_FILE} | gunzip > /etc/machine-config-daemon/currentconfig; rm /tmp/{CONFIG_FILE}"
        ),
        (
            "RUN set -e; jq .spec.config /etc/machine-config-daemon/currentconfig > /tmp/ignition.json; "
            "export container=oci; "
            "(exec -a ignition-apply /usr/lib/dracut/modules.d/30ignition/ignition --ignore-unsupported "
            "/tmp/ignition.json); rm /tmp/ignition.json; ostree container commit"
        ),
    ]
    if given.has_trust:
        lines += [
            f"COPY {TRUST_FILE} /etc/pki/ca-trust/source/anchors/{TRUST_FILE}",
            "RUN update-ca-trust && ostree container commit",
        ]
    lines += _packages(given)
    lines += [
        f"LABEL machineconfig={given.rendered}",
        f"LABEL machineconfigpool={given.pool}",
        f"LABEL baseOSContainerImage={given.os_image}",
    ]
    return normalised_text("\n".join([*lines, given.user_text]))


def extension_packages(extensions: Iterable[str]) -> tuple[str, ...]:
    """The packages of a set of extensions, sorted."""
    return tuple(sorted({each for name in extensions for each in EXTENSION_PACKAGES.get(name, (name,))}))


def _packages(given: Rendering) -> Sequence[str]:
    kernel, wanted = _KERNELS.get(given.kernel_type, ()), extension_packages(given.extensions)
    if not given.extensions_image or not (kernel or wanted):
        return ()
    repository = "/etc/yum.repos.d/coreos-extensions.repo"
    source = "/tmp/extensions"  # noqa: S108 - a directory in the image that is built
    steps = [
        "set -e",
        (
            rf"printf '[extensions]\nenabled=1\ngpgcheck=0\nbaseurl=file://{source}{_PACKAGES}\n' "
            f"> {repository}"
        ),
    ]
    if kernel:
        installs = " ".join(f"--install {each}" for each in kernel)
        steps.append(f"rpm-ostree override remove {' '.join(_KERNEL)} {installs}")
    if wanted:
        steps.append(f"rpm-ostree install {' '.join(wanted)}")
    steps += [f"rm {repository}", "ostree container commit"]
    mount = f"--mount=type=bind,from={given.extensions_image},source=/,target={source}"
    return [f"RUN {mount} {'; '.join(steps)}"]


# -- objects of a Job --------------------------------------------------------------------------------------------------


CREDENTIALS: Final = "credentials"
CONTEXT: Final = "context"
FILE: Final = "file"
"""What ``body["as"]`` may say: registry credentials in their one form, a MachineConfig as the context of a Job, or a
file of it."""
CONTAINERFILE: Final = "Containerfile"
TRUST_OBJECT: Final = "additionaltrustbundle"
_CONTAINERS_FILES: Final = {"etc-policy": "policy.json", "etc-registries": "registries.conf"}
"""Copy → the file of ``/etc/containers`` that it holds, where nodes have one."""


def machine_object_labels(
    config: MachineOSConfigFacts, execution: str, role: str, architecture: str = "", arch_key: str = ""
) -> ObjectLabels:
    """Ours and the stock ones."""
    own = object_labels(
        image_build=config.name, execution=execution, role=role, architecture=architecture, arch_key=arch_key
    )
    stock = api.ephemeral_labels(
        config=config.name, pool=config.pool_name, rendered=config.rendered_name, build=execution
    )
    labels = {key: shortened(text, MAX_LABEL) for key, text in stock.items()}
    longer = {key: text for key, text in stock.items() if len(text) > MAX_LABEL}
    return ObjectLabels(labels={**own.labels, **labels}, annotations={**own.annotations, **longer})


def secrets(config: MachineOSConfigFacts, build: str) -> dict[str, str]:
    """Name of the copy → the Secret that it is a copy of."""
    copies = api.ephemeral_name(build)
    found = {copies["base"]: config.pull_secret}
    return {**found, copies["final"]: config.push_secret} if config.push_secret else found


def job_preparations(config: MachineOSConfigFacts, job_inputs: JobInputs) -> tuple[Write, ...]:
    """The copies that the Job of an architecture mounts, made anew for every Job."""
    own = _build_labels(config, job_inputs)
    owner = {**job_inputs.owner, "controller": False, "blockOwnerDeletion": False}
    copies = api.ephemeral_name(job_inputs.execution)
    found = [
        _prepare(config, "Secret", copy, own, owner, {"as": CREDENTIALS, "of": secret})
        for copy, secret in secrets(config, job_inputs.execution).items()
    ]
    context = {"as": CONTEXT, "of": config.rendered_name, "key": CONFIG_FILE}
    found.append(_prepare(config, "ConfigMap", copies["mc"], own, owner, context))
    for copy, file in _CONTAINERS_FILES.items():
        source = {"as": FILE, "of": config.rendered_name, "path": f"/etc/containers/{file}", "key": file}
        found.append(_prepare(config, "ConfigMap", copies[copy], own, owner, source))
    if config.trust:
        bundle = base64.b64encode(config.trust.encode()).decode()
        found.append(_config_map(config, copies[TRUST_OBJECT], own, owner, {"binaryData": {TRUST_FILE: bundle}}))
    texts = {"data": _containerfiles(config, job_inputs)}
    return (*found, _config_map(config, copies["containerfile"], own, owner, texts))


def machine_job_manifests(
    config: MachineOSConfigFacts, job_inputs: JobInputs, record: str
) -> Sequence[Mapping[str, Any]]:
    """The inputs of the Job of an architecture, and the Job."""
    return job_manifests(_rendered(config, job_inputs, record))


def owner_patches(config: MachineOSConfigFacts, execution: str, owners: Sequence[tuple[str, str]]) -> tuple[Write, ...]:
    """Copies that several Jobs mount have one owner reference for each Job, name and UID."""
    if not owners:
        return ()
    references = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": False} for name, uid in owners
    ]
    body = {"metadata": {"ownerReferences": references}}
    copies = api.ephemeral_name(execution)
    maps = ["containerfile", "mc", *([TRUST_OBJECT] if config.trust else [])]
    shared = [
        *(("Secret", copy) for copy in secrets(config, execution)),
        *(("ConfigMap", copies[each]) for each in maps),
    ]
    return tuple(
        Write.merge(kind, copy, body, namespace=config.namespace, step=BuildStep.CREATE_JOB) for kind, copy in shared
    )


def job_deletions(config: MachineOSConfigFacts, jobs: Iterable[JobFacts], execution: str) -> tuple[Write, ...]:
    """The Jobs of a build and their inputs: their names are needed again."""
    found = []
    for job in sorted((each for each in jobs if each.run == execution), key=lambda each: each.name):
        if not job.deleting:
            found.append(
                Write(
                    verb="delete",
                    kind="Job",
                    namespace=job.namespace,
                    name=job.name,
                    step=BuildStep.END_SUPERSEDED,
                    uid=job.uid,
                )
            )
        inputs = configmap_name(job.name)
        found.append(
            Write(verb="delete", kind="ConfigMap", namespace=job.namespace, name=inputs, step=BuildStep.END_SUPERSEDED)
        )
    return tuple(found)


def _build_labels(config: MachineOSConfigFacts, job_inputs: JobInputs) -> ObjectLabels:
    return _entitled(machine_object_labels(config, job_inputs.execution, ""), job_inputs)


def _job_labels(config: MachineOSConfigFacts, job_inputs: JobInputs) -> ObjectLabels:
    key = job_inputs.target.keys[job_inputs.architecture]
    return _entitled(
        machine_object_labels(config, job_inputs.execution, names.ARCH_ROLE, job_inputs.architecture, key), job_inputs
    )


def _entitled(found: ObjectLabels, job_inputs: JobInputs) -> ObjectLabels:
    machine = job_inputs.inputs.machine
    has = {f"{api.ENTITLED}{each}": "" for each in (machine.entitlements if machine is not None else ())}
    return msgspec.structs.replace(found, annotations={**found.annotations, **has})


def _prepare(
    config: MachineOSConfigFacts,
    kind: str,
    name: str,
    own: ObjectLabels,
    owner: Mapping[str, Any],
    source: Mapping[str, str],
) -> Write:
    body = {"metadata": _metadata(config, name, own, owner), "source": dict(source)}
    return Write(verb="prepare", kind=kind, namespace=config.namespace, name=name, step=BuildStep.CREATE_JOB, body=body)


def _config_map(
    config: MachineOSConfigFacts,
    name: str,
    own: ObjectLabels,
    owner: Mapping[str, Any],
    content: Mapping[str, Mapping[str, str]],
) -> Write:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(config, name, own, owner),
        **content,
    }
    return Write.apply(body, step=BuildStep.CREATE_JOB)


def _metadata(config: MachineOSConfigFacts, name: str, own: ObjectLabels, owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": config.namespace,
        "labels": own.labels,
        "annotations": own.annotations,
        "ownerReferences": [dict(owner)],
    }


def _containerfiles(config: MachineOSConfigFacts, job_inputs: JobInputs) -> dict[str, str]:
    """What is built, for people and their tools: a text for each architecture, since each names its own images."""
    architectures = job_inputs.target.architectures
    texts = {each: _text(config, msgspec.structs.replace(job_inputs, architecture=each)) for each in architectures}
    if len(texts) == 1:
        return {CONTAINERFILE: texts[architectures[0]]}
    return {f"{CONTAINERFILE}.{each}": text for each, text in texts.items()}


def _text(config: MachineOSConfigFacts, job_inputs: JobInputs) -> str:
    """The whole Containerfile of an architecture."""
    own, machine = job_inputs.inputs.per_architecture[job_inputs.architecture], job_inputs.inputs.machine
    if machine is None:
        return own.containerfile
    return rendered_containerfile(
        Rendering(
            os_image=_pinned(machine.os_image, job_inputs),
            extensions_image=_pinned(machine.extensions_image, job_inputs) if machine.extensions_image else "",
            pool=config.pool_name,
            rendered=config.rendered_name,
            kernel_type=machine.kernel_type,
            extensions=machine.extensions,
            has_trust=bool(config.trust),
            user_text=own.containerfile,
        )
    )


def _rendered(config: MachineOSConfigFacts, job_inputs: JobInputs, record: str) -> ArchitectureJobSpec:
    """The Job spec with the whole Containerfile, its images, and the copies in place of what the config names."""
    labels = _job_labels(config, job_inputs)
    metadata = JobMetadata(
        namespace=config.namespace,
        job=job_inputs.job,
        owners=(job_inputs.owner,),
        labels=labels.labels,
        annotations=labels.annotations,
        execution=job_inputs.execution,
        record=record,
    )
    plain, machine = architecture_job_spec(job_inputs, metadata), job_inputs.inputs.machine
    if machine is None:
        return plain
    copies, spec = api.ephemeral_name(job_inputs.execution), plain.spec
    pinned = {_pinned(each, job_inputs) for each in (machine.os_image, machine.extensions_image) if each}
    output = msgspec.structs.replace(
        spec.output,
        push_secret=NameReference(copies["final"]) if config.push_secret else None,
        pull_secrets=[NameReference(copies["base"])],
    )
    trusted = "\n".join(each for each in (plain.settings.trust_bundle, config.trust) if each)
    given = MachineJobMounts(
        context=(copies["mc"], *((copies[TRUST_OBJECT],) if config.trust else ())),
        containers=tuple(copies[each] for each in _CONTAINERS_FILES),
        entitled=tuple(each for each in machine.entitled if each.name in machine.entitlements),
    )
    return msgspec.structs.replace(
        plain,
        spec=msgspec.structs.replace(spec, output=output),
        containerfile=_text(config, job_inputs),
        images=[*plain.images, *(PulledImage(written=(each,), pull=each) for each in sorted(pinned))],
        given=given,
        settings=msgspec.structs.replace(plain.settings, trust_bundle=trusted),
    )


def _pinned(image: str, job_inputs: JobInputs) -> str:
    name = canonical_image(image)
    digests = {(pin.reference, pin.architecture): pin.digest for pin in job_inputs.target.pins}
    digest = digests.get((name, job_inputs.architecture))
    return f"{parse(name).name}@{digest}" if digest else name


# -- registry credentials in the one form that Jobs get ----------------------------------------------------------------


AUTHS: Final = "auths"


def one_form(body: bytes) -> bytes:
    """The document with ``auths`` and nothing else, from either shape: with and without that member.

    Raises ``MalformedDocument``.
    """
    document = read_object(body)
    hosts: dict[str, Any] = {name: entry for name, entry in document.items() if name not in HELPERS}
    if AUTHS in document:
        hosts = dict(member(document, AUTHS))
    if not hosts:
        raise MalformedDocument("it names no registry")
    return msgspec.json.encode({AUTHS: hosts}, order="deterministic")


# -- files of a rendered MachineConfig ---------------------------------------------------------------------------------


MAX_FILE_BYTES: Final = 1024 * 1024
"""What fits into a ConfigMap, and into an object at all; a file that unpacks to more is none that a build can use."""
_GZIP: Final = 31
"""Window bits of zlib for gzip."""


class UnreadableFile(ValueError):  # noqa: N818 - what it is
    """The message names the file, and quotes none of its content."""


def ignition_file(rendered: Mapping[str, Any], path: str) -> str | None:
    """The text of a file of the config; None if there is none. Raises :class:`UnreadableFile`."""
    config: Mapping[str, Any] = (rendered.get("spec") or {}).get("config") or {}
    for each in (config.get("storage") or {}).get("files") or ():
        if each.get("path") == path:
            return _decoded_text(each.get("contents") or {}, path)
    return None


def _decoded_text(contents: Mapping[str, Any], path: str) -> str:
    source = str(contents.get("source") or "")
    header, comma, body = source.partition(",")
    if not comma or not header.startswith("data:"):
        raise UnreadableFile(f"file {path} of the rendered MachineConfig is not written as a data URL")
    try:
        content = unquote_to_bytes(body)
        if header.endswith(";base64"):
            content = base64.b64decode(content, validate=True)
        if contents.get("compression") == "gzip":
            unpacking = zlib.decompressobj(_GZIP)
            content = unpacking.decompress(content, MAX_FILE_BYTES)
            if unpacking.unconsumed_tail:
                raise UnreadableFile(f"file {path} of the rendered MachineConfig is larger than {MAX_FILE_BYTES} bytes")
        return content.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise UnreadableFile(f"file {path} of the rendered MachineConfig cannot be read: {error}") from None


# -- CAs that nodes trust in addition ----------------------------------------------------------------------------------


CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


def trust_bundle(encoded: str) -> str | None:
    """The CAs (PEM), empty for none; None for what holds none: a build would fail over it, nodes pass over it."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None
    return text if not text.strip() or CERTIFICATE in text else None
