"""Namespaces, whose labels the selectors of configurations match."""

import msgspec

from polyarch.model.meta import ObjectMeta


class Namespace(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Namespace reduced to its metadata."""

    metadata: ObjectMeta = ObjectMeta()
