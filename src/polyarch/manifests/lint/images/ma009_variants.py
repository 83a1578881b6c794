"""MA009: an image has platforms that node labels do not distinguish.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.platforms import NODE_SYSTEMS, Platform

RULE = Rule(
    id="MA009",
    severity=Severity.INFO,
    title="An image needs more than node labels show",
    meaning="A platform of the image has a variant or an OS version. kubernetes.io/arch and kubernetes.io/os do not "
    "show them, so the scheduler cannot take them into account.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    platforms = place.resolved.platforms if place.resolved is not None else ()
    special = [platform for platform in platforms if _is_special(platform)]
    if special:
        labels = ", ".join(dict.fromkeys(map(_label, special)))
        yield place.draft(
            RULE,
            f"{place.subject}: {place.name} has {', '.join(map(str, special))}, "
            "which kubernetes.io/arch and kubernetes.io/os do not show",
            f"select such nodes by {labels}",
        )


def _is_special(platform: Platform) -> bool:
    if platform.os not in NODE_SYSTEMS:
        return False
    if platform.os_version:
        return True
    usual = platform.architecture == "arm64" or (platform.architecture, platform.variant) == ("arm", "v7")
    return bool(platform.variant) and not usual


def _label(platform: Platform) -> str:
    if platform.os_version:
        build = ".".join(platform.os_version.split(".")[:3])
        return f"node.kubernetes.io/windows-build: {build}" if platform.os == "windows" else "a label of your own"
    if platform.architecture == "amd64":
        return "feature.node.kubernetes.io/cpu-cpuid.* (node-feature-discovery)"
    return f"a label of your own for {platform.architecture}/{platform.variant}"
