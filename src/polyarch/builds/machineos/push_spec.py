"""The push spec of a MachineOSConfig: a repository with a tag, whose images must be nameable by digest (BD-274).

Their API takes more paths in the form with a tag than in the form with a digest, in which the result is published. So
the second is checked before anything is built.
"""

import re
from typing import Final

from polyarch.builds.facts.problem import Problem

_HOST: Final = r"(?:[a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(?::[0-9]{2,5})?"
_LAST: Final = r"[a-zA-Z0-9_.-]+"
_WITH_TAG: Final = re.compile(rf"{_HOST}/(?:[a-zA-Z0-9_-]{{1,61}}/)*{_LAST}:[a-zA-Z0-9._-]+", re.ASCII)
_SERVICE: Final = re.compile(r"[^./:]+\.[^./:]+\.svc:[0-9]+/[^/]+/[^/:]+:[^/:]+", re.ASCII)
_BY_DIGEST: Final = re.compile(rf"{_HOST}/(?:[a-zA-Z0-9_-]{{1,61}}/)?{_LAST}", re.ASCII)


def repository(push_spec: str) -> str:
    """Without the tag, which is ignored: every build has a tag of its own (BD-270)."""
    name, colon, tag = push_spec.rpartition(":")
    return name if colon and "/" not in tag else push_spec


def problem(config: str, push_spec: str) -> Problem | None:
    """What keeps a result from being published under this push spec."""
    if not (_WITH_TAG.fullmatch(push_spec) or _SERVICE.fullmatch(push_spec)):
        return _problem(
            "InvalidSpec",
            config,
            push_spec,
            "it must be HOST/PATH:TAG, with a dot in the host; parts of the path have at most 61 letters, digits, "
            "'_' and '-', and the last may have dots",
        )
    if not _BY_DIGEST.fullmatch(repository(push_spec)):
        return _problem(
            "DigestFormUnsupported",
            config,
            push_spec,
            "the result cannot be named by digest: status.digestedImagePushSpec takes at most one part of a path "
            "before the last; push to HOST/NAME:TAG or HOST/PROJECT/NAME:TAG",
        )
    return None


def _problem(reason: str, config: str, push_spec: str, sentence: str) -> Problem:
    return Problem(
        reason=reason,
        message=f"MachineOSConfig {config}: spec.renderedImagePushSpec is {push_spec[:120]!r}: {sentence}.",
    )
