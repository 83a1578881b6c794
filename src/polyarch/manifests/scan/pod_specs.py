"""A pod specification as rules see it: its images and node constraints, each with its position in the text.

Nothing is checked or refused here: a null term, an expression without an operator or a weight that is a string are
all represented, because rules report them.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from yaml.nodes import MappingNode, Node

from polyarch.kube.patches import pointer
from polyarch.manifests.scan.nodes import Document, elements, find, get, is_null, members, text_of
from polyarch.manifests.scan.objects import KubeObject

Role = Literal["container", "init", "ephemeral", "volume"]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERMS = "nodeSelectorTerms"


class NamedText(NamedTuple):
    """A text that a container is given, and its place."""

    name: str
    text: str
    node: Node
    pointer: str


@dataclass(frozen=True, eq=False)
class ImageUse:
    """An image that a pod needs (MF-005)."""

    text: str
    """As it is written; empty where the container names none."""
    resolved_text: str
    """The image to inspect: after the ``images`` of the nearest kustomization (MF-014)."""
    role: Role
    container: str
    """Name of the container or volume."""
    node: Node
    """The image's scalar; the container where there is none."""
    pointer: str
    """Pointer of the image, even if it is missing."""
    holder: Node
    """The container or volume itself."""
    holder_pointer: str

    @property
    def environment(self) -> Iterator[NamedText]:
        """The variables of the container that have a name and a literal value."""
        for index, variable in enumerate(elements(get(self.holder, "env"))):
            name, node = text_of(get(variable, "name")), get(variable, "value")
            text = text_of(node)
            if name and node is not None and text:
                yield NamedText(name, text, node, f"{self.holder_pointer}/env/{index}/value")

    @property
    def arguments(self) -> Iterator[NamedText]:
        """The words of ``command`` and ``args``; the name is that of the field."""
        for field in ("command", "args"):
            for index, node in enumerate(elements(get(self.holder, field))):
                text = text_of(node)
                if text:
                    yield NamedText(field, text, node, f"{self.holder_pointer}/{field}/{index}")


@dataclass(frozen=True, eq=False)
class Expression:
    """One of ``matchExpressions`` or ``matchFields``. A missing member is an empty string with the node None."""

    node: Node
    pointer: str
    key: str
    operator: str
    values: tuple[str, ...]
    key_node: Node | None
    operator_node: Node | None
    values_node: Node | None
    value_nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Term:
    """A node selector term; ``node`` may be a null scalar."""

    node: Node
    pointer: str
    expressions: tuple[Expression, ...]
    fields: tuple[Expression, ...]

    @property
    def is_empty(self) -> bool:
        """Neither expressions nor fields: it matches no node at all (MF-003)."""
        return not self.expressions and not self.fields


@dataclass(frozen=True, eq=False)
class Required:
    """``requiredDuringSchedulingIgnoredDuringExecution``; without terms the API server refuses the pod."""

    node: Node
    pointer: str
    terms_node: Node | None
    terms: tuple[Term, ...]

    @property
    def terms_pointer(self) -> str:
        return f"{self.pointer}/{TERMS}"


@dataclass(frozen=True, eq=False)
class PreferredTerm:
    """One of ``preferredDuringSchedulingIgnoredDuringExecution``."""

    node: Node
    pointer: str
    weight: str | None
    """As it is written; None if it is missing or null."""
    weight_node: Node | None
    preference: Term | None
    bare: Term | None
    """Expressions beside ``preference`` instead of in it (MA111 ``shape``)."""


@dataclass(frozen=True, eq=False)
class LabelEntry:
    """One entry of ``nodeSelector`` or of an object's labels."""

    key: str
    value: str
    key_node: Node
    value_node: Node
    pointer: str


def label_entries(node: Node | None, path: str) -> tuple[LabelEntry, ...]:
    """The entries of the mapping ``node``, whose pointer is ``path``."""
    return tuple(
        LabelEntry(key, text_of(member) or "", key_node, member, path + pointer(key))
        for key, (key_node, member) in members(node).items()
    )


@dataclass(frozen=True, eq=False)
class Inherited:
    """The mapping whose node selector and affinity apply if the pod specification has none (Argo's workflow)."""

    node: Node
    pointer: str


@dataclass(frozen=True, eq=False)
class PodSpec:
    """A pod specification, once for each node of the text and object that has it. ``uses`` are all pointers at which it
    is one: aliases may lead to its text from elsewhere, too.
    """

    object: KubeObject
    node: MappingNode
    pointer: str
    uses: tuple[str, ...]
    images: tuple[ImageUse, ...]
    inherited: Inherited | None = None
    duplicates: tuple[tuple[str, Node], ...] = ()
    """Repeated keys in a mapping that holds the pod specification, or in it (MA902): it is not edited then."""

    @property
    def document(self) -> Document:
        return self.object.document

    @property
    def is_patch(self) -> bool:
        """Whether it is only a part of a pod specification, which its base completes. ``null`` removes a member of the
        base, and a container without an image has that of the base (which is left out here).
        """
        return self.object.patched_by is not None

    def _member(self, key: str) -> tuple[Node | None, str]:
        """A member of the pod specification or, if it has none, of the one it inherits from."""
        node = get(self.node, key)
        if node is None and self.inherited is not None:
            outer = get(self.inherited.node, key)
            if outer is not None:
                return outer, self.inherited.pointer + pointer(key)
        return node, self.pointer + pointer(key)

    @cached_property
    def node_selector(self) -> tuple[LabelEntry, ...]:
        entries = label_entries(*self._member("nodeSelector"))
        return tuple(each for each in entries if not (self.is_patch and is_null(each.value_node)))

    @cached_property
    def affinity(self) -> tuple[Node | None, str]:
        """The node of ``affinity`` (None: missing; may be null) and its pointer."""
        return self._member("affinity")

    @cached_property
    def node_affinity(self) -> tuple[Node | None, str]:
        node, path = self.affinity
        return get(node, "nodeAffinity"), f"{path}/nodeAffinity"

    @cached_property
    def required(self) -> Required | None:
        """None if the key is missing, or null in a patch; elsewhere null has no terms."""
        outer, path = self.node_affinity
        node = get(outer, REQUIRED)
        if node is None:
            return None
        path = f"{path}/{REQUIRED}"
        terms_node = get(node, TERMS)
        if self.is_patch and not elements(terms_node):
            return None
        terms = tuple(_term(term, f"{path}/{TERMS}/{index}") for index, term in enumerate(elements(terms_node)))
        return Required(node, path, terms_node, terms)

    @cached_property
    def preferred(self) -> tuple[PreferredTerm, ...]:
        outer, path = self.node_affinity
        return tuple(
            _preferred(node, f"{path}/{PREFERRED}/{index}")
            for index, node in enumerate(elements(get(outer, PREFERRED)))
        )

    @property
    def os_name_node(self) -> Node | None:
        return find(self.node, "os", "name")

    @property
    def os_name(self) -> str:
        return text_of(self.os_name_node) or ""

    @property
    def node_name(self) -> str:
        """The node that the manifest sets, which bypasses the scheduler."""
        return text_of(get(self.node, "nodeName")) or ""

    @property
    def tolerations(self) -> tuple[Node, ...]:
        return tuple(elements(self._member("tolerations")[0]))


def _term(node: Node, path: str) -> Term:
    return Term(node, path, _expressions(node, path, "matchExpressions"), _expressions(node, path, "matchFields"))


def _expressions(term: Node, path: str, key: str) -> tuple[Expression, ...]:
    return tuple(
        _expression(node, f"{path}/{key}/{index}")
        for index, node in enumerate(elements(get(term, key)))
        if not is_null(node)
    )


def _expression(node: Node, path: str) -> Expression:
    key_node, operator_node, values_node = get(node, "key"), get(node, "operator"), get(node, "values")
    value_nodes = tuple(elements(values_node))
    return Expression(
        node=node,
        pointer=path,
        key=text_of(key_node) or "",
        operator=text_of(operator_node) or "",
        values=tuple(text_of(value) or "" for value in value_nodes),
        key_node=key_node,
        operator_node=operator_node,
        values_node=values_node,
        value_nodes=value_nodes,
    )


def _preferred(node: Node, path: str) -> PreferredTerm:
    weight_node, preference = get(node, "weight"), get(node, "preference")
    bare = None if is_null(get(node, "matchExpressions")) and is_null(get(node, "matchFields")) else _term(node, path)
    return PreferredTerm(
        node=node,
        pointer=path,
        weight=text_of(weight_node),
        weight_node=weight_node,
        preference=None if preference is None else _term(preference, f"{path}/preference"),
        bare=bare,
    )
