"""Names of what a build makes: executions, Jobs, tags, and the labels that find them (BD-021, BD-078 to BD-081).

Names are made from inputs alone, so that a second attempt finds what the first one made. Long names are shortened in
one way only, with a hash of the whole: two long names never meet.
"""

import hashlib
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.oci import reference

LONGEST_NAME = 253
LONGEST_LABEL = 63
LONGEST_TAG = 128
_HASH_DIGITS = 10
KNOWN: Final = 2048
"""Names of images whose canonical form is kept: every plan of a build reads the same few (BD-348)."""


def short(text: str, length: int) -> str:
    """The text if it has at most ``length`` characters; else its beginning and a hash of all of it (BD-078)."""
    if len(text) <= length:
        return text
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{text[: length - _HASH_DIGITS - 1].rstrip('-._')}-{digits}"


def run(image_build: str, build_key: str, serial: int) -> str:
    """Name of an ImageBuildRun (BD-021)."""
    return short(f"{image_build}-{build_key[:_HASH_DIGITS]}-{serial}", LONGEST_NAME)


def record(execution: str) -> str:
    """Name of the ConfigMap that lists an ImageBuildRun's children (BD-049)."""
    return short(f"{execution}-arch", LONGEST_NAME)


def job(execution: str, architecture: str) -> str:
    """Name of the Job that builds one architecture of an ImageBuildRun (BD-079)."""
    return short(f"{execution}-{architecture}", LONGEST_LABEL)


def index_job(execution: str) -> str:
    """Name of the Job that assembles the index of an ImageBuildRun, where Jobs do that (BD-079, BD-178)."""
    return short(f"{execution}-{names.INDEX_ROLE}", LONGEST_LABEL)


def prune_job(repository: str) -> str:
    """Name of the Job that deletes images of a repository (BD-178)."""
    digits = hashlib.sha256(repository.encode()).hexdigest()[:_HASH_DIGITS]
    return f"polyarch-{names.PRUNE_ROLE}-{digits}"


def machine_job(build: str, architecture: str, architectures: int) -> str:
    """Name of a MachineOSBuild's Job: the stock name where it builds one architecture only (BD-079)."""
    return short(f"build-{build}" if architectures == 1 else f"build-{build}-{architecture}", LONGEST_LABEL)


def machine_index_job(build: str) -> str:
    """Name of the index Job of a MachineOSBuild (BD-079)."""
    return short(f"build-{build}-{names.INDEX_ROLE}", LONGEST_LABEL)


def result_tag(execution: str) -> str:
    """The tag of an execution's result; a MachineOSBuild's name is never longer than a tag (BD-080)."""
    return short(execution, LONGEST_TAG)


def child_tag(execution: str, architecture: str) -> str:
    """The tag of one architecture's child (BD-080)."""
    return short(f"{execution}-{architecture}", LONGEST_TAG)


@lru_cache(KNOWN)
def repository(text: str) -> str:
    """The normalised ``host/repository`` (BD-076); other text stays as it is, since it is refused elsewhere."""
    try:
        return reference.parse_located(text).name
    except reference.InvalidReference:
        return text


@lru_cache(KNOWN)
def image(text: str) -> str:
    """The canonical reference of an image (RG-014); other text stays as it is, since it is refused elsewhere."""
    try:
        return reference.parse(text).canonical
    except reference.InvalidReference:
        return text


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Labels, and the annotations that hold in full what a label cannot."""

    labels: dict[str, str]
    annotations: dict[str, str]


def marks(*, image_build: str, execution: str, role: str, architecture: str = "", arch_key: str = "") -> Marks:
    """What every object made for a build carries (BD-081); members without a value are left out."""
    values = {
        names.BUILD_LABEL: image_build,
        names.RUN_LABEL: execution,
        names.ARCHITECTURE_LABEL: architecture,
        names.ROLE_LABEL: role,
    }
    labels = {key: short(value, LONGEST_LABEL) for key, value in values.items() if value}
    annotations = {key: value for key, value in values.items() if len(value) > LONGEST_LABEL}
    if arch_key:
        labels[names.KEY_LABEL] = arch_key[:16]
        annotations[names.KEY_ANNOTATION] = arch_key
    return Marks(labels={names.MANAGED_BY: names.MANAGER, **labels}, annotations=annotations)
