"""Names without a registry (RG-096, PL-424). Pure: text to reference, no requests."""

from polyarch.oci.reference import Reference, parse

ANYWHERE = "*"
"""Placeholder for the registry of a short name; no host has this name."""


def is_short(text: str, reference: Reference) -> bool:
    """Whether the text names no registry; ``docker://`` and a host do name one."""
    if reference.transport != "docker" or text.startswith("docker://"):
        return False
    first, slash, _ = text.partition("/")
    return not (slash and ("." in first or ":" in first or first == "localhost" or first.startswith("[")))


def unqualified(text: str) -> Reference | None:
    """A short name as a reference with registry :data:`ANYWHERE`, one key until its registry is known; None for a name
    with a registry.
    """
    reference = parse(text)
    if not is_short(text, reference):
        return None
    return Reference("docker", ANYWHERE, text[: name_end(text)], reference.tag, reference.digest)


def name_end(text: str) -> int:
    """Index of the end of the name, where its tag or digest begins."""
    tag_at = text.find(":", text.rfind("/") + 1)
    return min(at for at in (tag_at, text.find("@"), len(text)) if at >= 0)
