"""Failures of requests: messages that name the host, its own words, and the next action.

A ``Failure`` is raised inside the client and becomes the ``InspectionError`` of an answer. Text from a registry is
untrusted: it is cut to 200 characters, control characters are removed, and so are the secrets sent with the request, in
case the registry repeats them."""

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from polyarch.oci.inspection import TENANT_LIMIT, InspectionError, error_class_of

LONGEST_TEXT = 200
_PASSING_REFUSALS = frozenset({408, 421, 423, 424, 425, 429, 498, 499})
_LASTING_ERRORS = frozenset({501, 505})
PASSING = frozenset({"transient", "limit"})
"""The error classes that say nothing about the image: the next attempt may succeed."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ABSENT_CODES = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN", "NOT_FOUND"})

NEXT_ACTIONS = {
    "not-found": "check the spelling of the repository and that the tag or digest was pushed",
    "unauthorized": "check the credentials for this host",
    "denied": "ask for pull rights on this repository, or give other credentials",
    "credential-helper": "repair the credential helper or remove it from the configuration",
    "rate-limited": "try again later, or with credentials that have a higher limit",
    "tenant-limit": "try again later, with fewer images at a time",
    "timeout": "check the network path to the host, or allow more time",
    "network": "check the host's name, the network and the proxy settings",
    "server-error": "try again later; if it persists, report it to the registry's operator",
    "not-a-registry": "it may be down for maintenance or want a login: try again later, and check the host's name and "
    "the proxies before it",
    "digest-mismatch": "pull the image again from its origin: what this host has is damaged or forged",
    "malformed": "push the image again with a current tool",
    "ambiguous-manifest": "do not use this image: tools read it in two different ways",
    "unsupported-media-type": "push the image again as an OCI or Docker image",
    "unsupported-encoding": "turn off compression of manifests in the registry or the proxy before it",
    "too-large": "this is hardly an image: check what was pushed",
    "too-complex": "flatten the index",
    "tls": "give the CA with --ca or a certs.d directory, or configure the registry as insecure",
    "immutable-tag": "choose another tag, or lift the rule there",
    "quota": "free space there, or have the quota raised",
    "body-too-large": "the registry, or a proxy before it, takes no body of this size: raise the limit "
    "(nginx: client_max_body_size)",
    "no-repository": "create the repository there first: this registry makes none by itself",
    "unknown-host": "check its spelling, the mirrors that are configured, and this machine's network",
    "refused-address": "allow the address explicitly if it is meant to be reached",
    "refused-redirect": "check the registry's configuration and the proxies before it",
}
NO_CREDENTIALS = "there are no credentials for this host: the repository may be private or not exist"


class Failure(Exception):  # noqa: N818 - the name says what it is
    """A request and all its retries failed. ``error.message`` does not name the image yet."""

    def __init__(self, error: InspectionError) -> None:
        super().__init__(error.message)
        self.error = error

    @classmethod
    def of(
        cls,
        code: str,
        host: str,
        what: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        action: str | None = None,
    ) -> "Failure":
        """``HOST: WHAT; NEXT ACTION``."""
        action = NEXT_ACTIONS.get(code, "") if action is None else action
        message = f"{host}: {what}" if host else what
        if action:
            message = f"{message}; {action}"
        return cls(InspectionError.of(code, message, status=status, retry_after=retry_after, host=host))

    def about(self, image: str, attempts: tuple[str, ...] = ()) -> InspectionError:
        """The error of an answer: with the image's name, and a line per source if there were several."""
        what = self.error.message.removeprefix(f"{image}: ")  # a layout is both: the image and its host
        return msgspec.structs.replace(self.error, message=f"{image}: {what}", attempts=attempts)


def is_callers_own(error: BaseException) -> bool:
    """Whether a failure says something of the caller alone, so that who waits with it has to ask again."""
    return isinstance(error, Failure) and error.error.code == TENANT_LIMIT


class RegistryError(NamedTuple):
    """The first error in a registry's answer; both fields may be empty."""

    code: str
    message: str

    def __str__(self) -> str:
        quoted = f'"{self.message}"' if self.message else ""
        return " ".join(part for part in (self.code, quoted) if part)

    @property
    def words(self) -> str:
        """The same after a space, to continue a sentence with; empty if there is no error."""
        return f" {self}" if str(self) else ""


def read_errors(body: bytes, secrets: Iterable[str] = ()) -> RegistryError:
    """The error in a registry's answer (distribution specification, error codes); empty if there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return RegistryError("", "")
    errors = document.get("errors") if isinstance(document, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else document
    if not isinstance(first, dict):
        return RegistryError("", "")
    code, message = first.get("code"), first.get("message") or first.get("detail") or first.get("details")
    return RegistryError(
        clean(code, secrets, limit=60) if isinstance(code, str) else "",
        clean(message, secrets) if isinstance(message, str) else "",
    )


def clean(text: str, secrets: Iterable[str] = (), *, limit: int = LONGEST_TEXT) -> str:
    """Untrusted text for a message: without secrets, control and formatting characters, cut at the limit."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "…")
    shown = "".join(" " if unicodedata.category(character).startswith(("C", "Z")) else character for character in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def is_page(content_type: str, body: bytes = b"") -> bool:
    """Whether it is made for a browser. Registries send some pages' type with what is none, so the body counts more."""
    return content_type.lower().startswith(("text/html", "application/xhtml")) or body.lstrip()[:1] == b"<"


def is_passing_status(status: int) -> bool:
    """Whether the status tells of the server as it is now, such as 424 of a cache rule that is being filled or 522 of a
    content delivery network; not 4xx that find fault with the request, nor what the server never does.
    """
    return status in _PASSING_REFUSALS or (status >= 500 and status not in _LASTING_ERRORS)


def _code_of_status(status: int, registry_error: RegistryError) -> str:
    if status in (404, 410) or (status == 400 and registry_error.code in _ABSENT_CODES):
        return "not-found"
    if status == 401:
        return "unauthorized"
    if status in (403, 451):
        return "denied"
    if status in (406, 415):
        return "unsupported-media-type"
    return "server-error"


def passes(status: int, registry_error: RegistryError) -> bool:
    """Whether the failure of this status is of a class that passes, so that the request is worth another attempt."""
    return status >= 400 and error_class_of(_code_of_status(status, registry_error)) in PASSING


def of_status(host: str, what: str, status: int, registry_error: RegistryError, *, attempts: int = 1) -> Failure:
    """The failure for an HTTP status; 401, 403 and 429 are mostly handled elsewhere."""
    code = _code_of_status(status, registry_error)
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    return Failure.of(code, host, f"HTTP {status}{registry_error.words} for {what}{tried}", status=status)


_RATE = re.compile(r"\brate\b|too ?many ?requests", re.IGNORECASE)
_QUOTA = re.compile(
    r"quota|storage (resource|space|limit)|upper limit of|insufficient storage|no space left|LimitExceeded|"
    r"exceed\w* (the )?(\w+ )?(storage|capacity)",
    re.IGNORECASE,
)
_IMMUTABLE = re.compile(
    r"immutab|cannot be (overwritten|updated|modified)|already exists|overwrit|protected|locked|disallowed|TAG_INVALID",
    re.IGNORECASE,
)
_REFUSALS = frozenset({400, 403, 405, 409, 412, 413, 422, 429, 500, 507})
"""Statuses with which registries say that there is no more room, or that a tag may not be moved."""


def of_refused_write(failure: Failure, *, tag: str = "") -> Failure:
    """What a registry means that takes no upload or no manifest: registries have no codes for it, so their words count.

    ``tag``: what is written is a tag. Amazon's, Google's, Azure's and GitLab's registries, Harbor, Quay and Artifactory
    answer an immutable tag with 400, 403, 405, 409 or 412, and a quota with 403, 412, 413, 429 or 507.
    """
    error = failure.error
    said = error.message.removeprefix(f"{error.host}: ")
    for action in (*NEXT_ACTIONS.values(), NO_CREDENTIALS):
        said = said.replace(f"; {action}", "")
    code = ""
    if error.status == 507 or (error.status in _REFUSALS and _QUOTA.search(said) and not _RATE.search(said)):
        code = "quota"
    elif error.status == 413:
        code = "body-too-large"
    elif tag and error.status in _REFUSALS and _IMMUTABLE.search(said):
        code, said = "immutable-tag", f"the tag {tag} is immutable in this registry: {said}"
    elif error.status == 404 and ("NAME_UNKNOWN" in said or " for an upload" in said):
        code = "no-repository"  # of a manifest it may be what the manifest names that is not there
    if not code:
        return failure
    return Failure.of(code, error.host, said, status=error.status, retry_after=error.retry_after)
