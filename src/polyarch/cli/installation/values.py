"""Settings of an installation from ``--values`` and the flags; a flag wins over the file (IN-002, IN-010).

A values file is that of the chart.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.input.yaml_files import load_yaml
from polyarch.installation.components import UnknownComponent, component
from polyarch.installation.settings import Image, InstallationSettings
from polyarch.oci.reference import InvalidReference, parse

Values = dict[str, Any]


def settings(
    file: str | None,
    *,
    components: Sequence[str] = (),
    image: str = "",
    replicas: int | None = None,
    earlier: InstallationSettings | None = None,
) -> InstallationSettings:
    """``UsageError`` names the value that is wrong, and where it came from. ``earlier``: used without a file."""
    for name in components:
        _component(name, "--component")
    if file is None:
        found = earlier or InstallationSettings()
    else:
        values: Values = load_yaml("--values", file, expected="a mapping of values") or {}
        if not isinstance(values, dict):
            raise UsageError(f"--values {file}: expected a mapping of values, not a {type(values).__name__}")
        _check_components(values.get("components"), f"--values {file}")
        found = _converted(values, f"--values {file}")
    if components:
        found = msgspec.structs.replace(found, components=tuple(dict.fromkeys(components)))
    if image:
        found = msgspec.structs.replace(found, image=_image(found, image))
    if replicas is not None:
        if replicas < 1:
            raise UsageError(f"--replicas {replicas}: expected 1 or more")
        several = dict.fromkeys(("webhook_replicas", "controller_replicas", "handler_replicas"), replicas)
        found = msgspec.structs.replace(
            found,
            operator=msgspec.structs.replace(found.operator, replicas=replicas),
            placement=msgspec.structs.replace(found.placement, **several),
            taints=msgspec.structs.replace(found.taints, replicas=replicas),
            builds=msgspec.structs.replace(found.builds, replicas=replicas),
        )
    return found


def _converted(values: Values, origin: str) -> InstallationSettings:
    try:
        return msgspec.convert(values, InstallationSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin}: {_plain(str(error))}") from None


def _plain(problem: str) -> str:
    """msgspec's words in ours: the place first, and for a misspelt value the one that was meant."""
    said, _, place = problem.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    where = f"{place}: " if place else ""
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said)
    if unknown is None:
        return f"{where}{said[:1].lower()}{said[1:]}"
    from difflib import get_close_matches

    close = get_close_matches(unknown[1], _names(), n=1)
    instead = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(_names())}"
    return f"{where}unknown value {unknown[1]!r}; {instead}"


def _names() -> list[str]:
    """The names of all values, at every level."""
    definitions = msgspec.json.schema(InstallationSettings)["$defs"].values()
    return sorted({name for each in definitions for name in each.get("properties", ())})


def _check_components(given: object, origin: str) -> None:
    for name in given if isinstance(given, list) else ():
        _component(str(name), f"{origin}: components")


def _component(name: str, origin: str) -> None:
    try:
        component(name)
    except UnknownComponent as error:
        raise UsageError(f"{origin}: {error}") from None


def _image(found: InstallationSettings, text: str) -> Image:
    try:
        reference = parse(text)
    except InvalidReference as error:
        raise UsageError(f"--image: {error}") from None
    name = text.partition("@")[0]
    tag = reference.tag or ""
    repository = name.removesuffix(f":{tag}")
    tag = tag if repository != name else ""  # none was given: that of this version
    return msgspec.structs.replace(found.image, repository=repository, tag=tag, digest=reference.digest or "")
