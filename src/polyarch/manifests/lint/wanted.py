"""The images that must be resolved before the rules can run.

Pure: the caller resolves them, each once for the whole run (MF-090).
"""

from collections.abc import Iterable, Iterator

import msgspec

from polyarch.manifests.bundle.service_version import KIND, ServiceVersion
from polyarch.manifests.lint.engine import selected
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.pods.ma116_passed_image import passed_images
from polyarch.manifests.scan.scanning import Scan
from polyarch.oci.reference import InvalidReference, parse


def wanted(scan: Scan, options: LintOptions) -> tuple[str, ...]:
    """The image texts that the rules look up in :class:`~polyarch.manifests.scan.sets.Answers`, in order, each once."""
    return tuple(dict.fromkeys(_wanted(scan, options)))


def _wanted(scan: Scan, options: LintOptions) -> Iterator[str]:
    passed = selected(options, "MA116")
    for pod_spec in scan.pod_specs:
        yield from (use.resolved_text for use in pod_spec.images if use.resolved_text)
        if passed:
            yield from (image.text for image in passed_images(pod_spec))
    for subject in scan.objects:
        if subject.kind == KIND:
            own = (pod_spec for pod_spec in scan.pod_specs if pod_spec.object is subject)
            bundle = ServiceVersion.of(subject, own)
            yield from (image.text for image in bundle.images if image.is_in("variable", "related"))


def wanted_indexes(images: Iterable[str]) -> dict[str, str]:
    """For each text with tag and digest, the reference by tag: its answer, the index that the digest may be a child of,
    belongs into ``Answers.indexes`` (MA004). Texts with a digest alone have none.
    """
    found = {}
    for text in images:
        if "@" not in text:
            continue
        try:
            reference = parse(text)
        except InvalidReference:
            continue
        if reference.tag is not None and reference.digest is not None:
            found[text] = msgspec.structs.replace(reference, digest=None).canonical
    return found
