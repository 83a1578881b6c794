"""Names that leave their registry open (RG-096, PL-424). Pure: a text in, a reference out; nobody is asked."""

from polyarch.oci.reference import Reference, parse

ANYWHERE = "*"
"""Stands for the registry of a short name that is searched for; no host has this name."""


def is_short(text: str, reference: Reference) -> bool:
    """Whether the text leaves the registry open: ``docker://`` and a written host do not."""
    if reference.transport != "docker" or text.startswith("docker://"):
        return False
    first, slash, _ = text.partition("/")
    return not (slash and ("." in first or ":" in first or first == "localhost" or first.startswith("[")))


def unqualified(text: str) -> Reference | None:
    """The image that a short name means wherever it is found: of the registry :data:`ANYWHERE`, so that it is one and
    the same question until somebody knows where to look. None for a name that says where it is."""
    reference = parse(text)
    if not is_short(text, reference):
        return None
    return Reference("docker", ANYWHERE, text[: name_end(text)], reference.tag, reference.digest)


def name_end(text: str) -> int:
    """Where the name ends and its tag or digest begins."""
    tag_at = text.find(":", text.rfind("/") + 1)
    return min(at for at in (tag_at, text.find("@"), len(text)) if at >= 0)
