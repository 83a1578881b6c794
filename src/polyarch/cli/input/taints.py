"""The object ArchitectureTaints from a file, for clusters that do not have its kind.

A file is refused for what the cluster would refuse; a process that is given one does not start then."""

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import read_documents
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.crd import InvalidConfiguration, validated


def read_taints(path: str) -> ArchitectureTaints:
    """The one object of the file. Raises :class:`UsageError` that names file, line and every field that is wrong."""
    kind, version = ARCHITECTURE_TAINTS.kind, ARCHITECTURE_TAINTS.api_version
    documents = read_documents(path)
    if len(documents) != 1:
        raise UsageError(f"{path}: expected one object, {kind} of {version}; it has {len(documents)}")
    (document,) = documents
    try:
        return validated(document.content)
    except InvalidConfiguration as error:
        problems = "; ".join(f"line {document.line_of(f'.{each.field}')}: {each}" for each in error.problems)
        raise UsageError(f"{document.where}: {problems}") from None
