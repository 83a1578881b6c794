"""The object ArchitectureTaints from a file, for clusters that do not have its kind (TN-012).

A file is refused for what the cluster would refuse; a process that is given one does not start then.
"""

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import read_documents
from polyarch.taints import names
from polyarch.taints.api.resources import ARCHITECTURE_TAINTS, ArchitectureTaints


def read_taints(path: str) -> ArchitectureTaints:
    """The one object of the file. Raises :class:`UsageError` that names file, line and field."""
    kind, version = ARCHITECTURE_TAINTS.kind, ARCHITECTURE_TAINTS.api_version
    documents = read_documents(path)
    if len(documents) != 1:
        raise UsageError(f"{path}: expected one object, {kind} of {version}; it has {len(documents)}")
    (document,) = documents
    if (document.content.get("apiVersion"), document.kind) != (version, kind):
        found = f"{document.kind or 'an object without a kind'} of {document.content.get('apiVersion') or 'no version'}"
        raise document.error(f"expected {kind} of {version}, found {found}")
    if document.name != names.SINGLETON:
        raise document.error(f"metadata.name is {document.name!r}; only {names.SINGLETON!r} has a meaning")
    return document.into(ArchitectureTaints)
