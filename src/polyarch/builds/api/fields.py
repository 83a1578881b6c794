"""Fields that an ImageBuild has in several places: architectures, durations, names of other objects (BD-010, BD-011).

Pure.
"""

from typing import Final

from polyarch.builds.api import forms, settings
from polyarch.durations import PATTERN, format_duration
from polyarch.kube.schema import DNS_SUBDOMAIN, Schema, array, cel_text, obj, rule, text, text_map

NAME_LENGTH: Final = 253
REFERENCE_LENGTH: Final = 512


def architecture_name(field: str, description: str = "") -> Schema:
    """One architecture; the message of a refusal says what to write instead (BD-011)."""
    others = "{" + ", ".join(f"{cel_text(one)}: {cel_text(right)}" for one, right in forms.SPELLINGS.items()) + "}"
    lower = "self.lowerAscii()"
    wrong = [name for name in (*forms.SPELLINGS, forms.NEUTRAL) if forms.matches(forms.ARCHITECTURE, name)]
    advice = (
        f"{lower} == '{forms.NEUTRAL}' ? {cel_text(forms.NEUTRAL_ADVICE)} : {lower} in {others} ? {others}[{lower}]"
        f" : {lower}.matches('{forms.ARCHITECTURE}') ? {lower} : {cel_text(forms.ARCHITECTURE_ADVICE)}"
    )
    expression = f"'{field}: \\'' + self + '\\' is not an architecture as Go names it; write ' + ({advice})"
    allowed = f"self.matches('{forms.ARCHITECTURE}') && !(self in [{', '.join(map(cel_text, wrong))}])"
    return text(description=description, max_length=63, rules=[rule(allowed, message_expression=expression)])


def architecture_names(
    field: str, description: str, *, list_type: str = "set", least: int | None = None, default: tuple[str, ...] = ()
) -> Schema:
    """A list of architectures."""
    return array(
        architecture_name(field),
        description=description,
        list_type=list_type,
        min_items=least,
        max_items=settings.MOST_ARCHITECTURES,
        default=default or None,
    )


def at_least(field: str, least: float, description: str, *, default: float | None = None) -> Schema:
    """A Go duration with a lower bound only."""
    shortest = format_duration(least)
    return text(
        description=f"{description} A duration such as 90s or 1h30m, at least {shortest}.",
        pattern=PATTERN,
        max_length=32,
        default=format_duration(default) if default is not None else None,
        rules=[rule(f"duration(self) >= duration('{shortest}')", f"{field} must be a duration of at least {shortest}")],
    )


def object_name(description: str) -> Schema:
    """The name of an object."""
    return text(description=description, min_length=1, max_length=NAME_LENGTH, pattern=DNS_SUBDOMAIN)


def data_key(description: str) -> Schema:
    """A key of a ConfigMap or Secret."""
    return text(description=description, min_length=1, max_length=NAME_LENGTH, pattern=forms.DATA_KEY)


def name_reference(description: str) -> Schema:
    """An object of the same namespace, by its name."""
    return obj({"name": object_name("Its name.")}, description=description, required=("name",))


def image(description: str) -> Schema:
    """An image reference; what it means is for its reader to tell."""
    return text(description=description, min_length=1, max_length=REFERENCE_LENGTH, pattern=r"^[!-~]+$")


def bounded_texts(description: str, most: int) -> Schema:
    """Texts by name, so many at most."""
    return text_map(description, most=most) | {"additionalProperties": text(max_length=settings.ARGUMENT_LENGTH)}
