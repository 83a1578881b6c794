"""Writes fixes as a kustomize component of JSON patches instead of edited files.

Each patch names its target in full and tests what it replaces, so it fails rather than patch another object. It is a
JSON 6902 patch because a strategic merge patch would replace whole lists of terms.

Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from polyarch.kube import patches as jsonpatch
from polyarch.manifests.edit.style import BlockStyle, block_lines, scalar
from polyarch.manifests.fix import FixResult
from polyarch.manifests.operations import TreeOperation, to_json_patch
from polyarch.manifests.scan.nodes import get, text_of
from polyarch.manifests.scan.pod_specs import KubeObject
from polyarch.manifests.scan.scanning import scan

HEADER = ("apiVersion: kustomize.config.k8s.io/v1alpha1", "kind: Component")


@dataclass(frozen=True, eq=False)
class Patch:
    """The patch of one object; ``origin`` is its file."""

    origin: str
    target: dict[str, str]
    operations: tuple[jsonpatch.Operation, ...]


@dataclass
class Component:
    """The patches of a run, and the reasons for missing ones."""

    patches: list[Patch] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, result: FixResult) -> None:
        """Adds the fixes of a file."""
        found = scan(result.source)
        for number in sorted(result.operations):
            document = found.document(number)
            objects = [subject for subject in found.objects if subject.document is document]
            if len(objects) != 1 or objects[0].pointer:
                self._refuse_items(result, objects, number)
                continue
            target = _target(objects[0])
            if target is None:
                place = f"{result.source.path}, document {number + 1}"
                self.refused.append(f"{place}: the object has no kind or name, so no patch can select it")
                continue
            self.patches.append(
                Patch(result.source.path, target, to_json_patch(result.operations[number], document.value))
            )
            if result.added.get(number):
                self.refused.append(f"{result.source.path}: a component cannot add the objects that this fix adds")

    def text(self) -> str:
        """The component as YAML, in the order in which files were added."""
        lines = [*HEADER, "patches:" if self.patches else "patches: []"]
        for patch in self.patches:
            lines.append("- target:")
            lines += [f"    {key}: {scalar(value)}" for key, value in patch.target.items()]
            lines.append("  patch: |-")
            body = msgspec.to_builtins(patch.operations)
            lines += [f"    {line}" for line in block_lines(body, BlockStyle())]
        return "".join(f"{line}\n" for line in lines)

    def settle(self) -> None:
        """Remove patches whose targets match each other's objects: kustomize would apply both to both."""
        unclear = [
            patch
            for patch in self.patches
            if any(other is not patch and _could_be_same(patch.target, other.target) for other in self.patches)
        ]
        for patch in unclear:
            self.patches.remove(patch)
            self.refused.append(
                f"{patch.origin}: another {patch.target['kind']} has the same name; give both a namespace"
            )

    def _refuse_items(self, result: FixResult, objects: Iterable[KubeObject], number: int) -> None:
        for subject in objects:
            if _touches(result.operations[number], subject):
                index = subject.pointer.rpartition("/")[2]
                self.refused.append(f"{result.source.path}: a patch cannot name item {index} of a list")


def _target(subject: KubeObject) -> dict[str, str] | None:
    """Group, version, kind, name and namespace; kustomize reads names as regular expressions."""
    name = text_of(get(subject.metadata, "name"))
    if not subject.kind or not name:
        return None
    group, _, version = subject.api_version.rpartition("/")
    parts = {"group": group, "version": version, "kind": subject.kind, "name": re.sub(r"\.", r"\\.", name)}
    if subject.namespace:
        parts["namespace"] = re.sub(r"\.", r"\\.", subject.namespace)
    return {key: value for key, value in parts.items() if value}


def _touches(operations: Iterable[TreeOperation], subject: KubeObject) -> bool:
    return any(operation.pointer.startswith(f"{subject.pointer}/") for operation in operations)


def _could_be_same(one: dict[str, str], other: dict[str, str]) -> bool:
    keys = ("group", "kind", "name")
    if any(one.get(key) != other.get(key) for key in keys):
        return False
    spaces = (one.get("namespace"), other.get("namespace"))
    return None in spaces or spaces[0] == spaces[1]
