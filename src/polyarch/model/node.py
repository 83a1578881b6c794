"""Nodes, as far as a rule looks at them: their labels are what pods are placed by."""

import msgspec

from polyarch.model.meta import ObjectMeta


class Node(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Node reduced to its metadata; a PartialObjectMetadata decodes into it as well."""

    metadata: ObjectMeta = ObjectMeta()
