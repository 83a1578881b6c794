"""Settings of an installation from ``--values`` and the flags; a flag wins over the file (IN-002, IN-010).

A values file is that of the chart.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.input.yaml_files import load_yaml
from polyarch.installation.objects import UnknownComponent, component
from polyarch.installation.settings import Image, InstallationSettings, Registries, of_record
from polyarch.oci.reference import InvalidReference, parse
from polyarch.operator import registry_settings
from polyarch.operator.settings import MAX_REPLICAS

Values = dict[str, Any]
RECORDED: Final = "the values of the installation, as it remembers them"


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
        _check(found, RECORDED)
    else:
        values: Values = load_yaml("--values", file, expected="a mapping of values") or {}
        if not isinstance(values, dict):
            raise UsageError(f"--values {file}: expected a mapping of values, not a {type(values).__name__}")
        _check_components(values.get("components"), f"--values {file}")
        found = _converted(values, f"--values {file}")
        _check(found, f"--values {file}")
    if components:
        found = msgspec.structs.replace(found, components=tuple(dict.fromkeys(components)))
    if image:
        found = msgspec.structs.replace(found, image=_image(found, image))
    if replicas is not None:
        if not 1 <= replicas <= MAX_REPLICAS:
            raise UsageError(f"--replicas {replicas}: expected a number from 1 to {MAX_REPLICAS}")
        several = dict.fromkeys(("webhook_replicas", "controller_replicas", "handler_replicas"), replicas)
        found = msgspec.structs.replace(
            found,
            operator=msgspec.structs.replace(found.operator, replicas=replicas),
            placement=msgspec.structs.replace(found.placement, **several),
            taints=msgspec.structs.replace(found.taints, replicas=replicas),
            builds=msgspec.structs.replace(found.builds, replicas=replicas),
        )
    return found


def earlier_settings(record: str) -> InstallationSettings:
    """The values that an installation remembers. ``UsageError`` if this version does not take one of them."""
    try:
        return of_record(record)
    except msgspec.ValidationError as error:
        problem = _plain(str(error), msgspec.json.decode(record))
    raise UsageError(f"{RECORDED}: {problem}; give corrected ones with --values")


def _converted(values: Values, origin: str) -> InstallationSettings:
    try:
        return msgspec.convert(values, InstallationSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin}: {_plain(str(error), values)}") from None


def _check(given: InstallationSettings, origin: str) -> None:
    """What nodes or roles would refuse later is refused before anything is written (IN-030)."""
    images = {"image": given.image.reference, "builds.builderImage": given.builds.builder_image}
    for place, text in images.items():
        try:
            parse(text)
        except InvalidReference as error:
            raise UsageError(f"{origin}: {place}: {error}") from None
    if wrong := _wrong_registries(given.registries):
        raise UsageError(f"{origin}: {wrong}")


def _wrong_registries(given: Registries) -> str:
    """The first value that a role would refuse as it starts, and why; empty: none."""
    wrong = [
        f"registries.allowAddresses[{index}]: {problem}"
        for index, text in enumerate(given.allow_addresses)
        if (problem := registry_settings.wrong_range(text))
    ]
    if given.configuration:
        wrong.append(registry_settings.wrong_configuration(given.configuration.encode(), "registries.configuration"))
    if given.authorities:
        wrong.append(registry_settings.wrong_authorities(given.authorities.encode(), "registries.authorities"))
    return next(filter(None, wrong), "")


def _plain(problem: str, values: Values) -> str:
    """msgspec's words in ours: the place first, the value and what is possible, for a misspelt value what was meant."""
    said, _, place = problem.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    where = f"{place}: " if place else ""
    for pattern, title in _patterns(msgspec.json.schema(InstallationSettings)):
        if said.endswith(f"regex {pattern!r}"):
            return f"{where}{_at(values, place)!r} is not {title}"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said)
    if unknown is None:
        return f"{where}{said[:1].lower()}{said[1:]}"
    from difflib import get_close_matches

    close = get_close_matches(unknown[1], _names(), n=1)
    instead = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(_names())}"
    return f"{where}unknown value {unknown[1]!r}; {instead}"


def _patterns(schema: object) -> Iterator[tuple[str, str]]:
    """Each pattern that a value has to match, with what such a value is."""
    if isinstance(schema, dict):
        if "pattern" in schema:
            yield schema["pattern"], schema["title"]
        for each in schema.values():
            yield from _patterns(each)


def _at(values: object, place: str) -> object:
    """The value there: ``registries.allowAddresses[0]``."""
    for name in re.findall(r"[^.\[\]]+", place):
        if isinstance(values, dict):
            values = values[name]
        elif isinstance(values, list):
            values = values[int(name)]
    return values


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
