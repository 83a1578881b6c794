"""What the Jobs of a machine OS build mount that no plan may hold: copies of Secrets, and the rendered config (BD-284).

A copy is made from what is there now, so that a rotated credential reaches the next Job. What cannot be copied raises,
and is tried again: whether a Secret can be used at all, the plan has asked before.
"""

import base64
import gzip
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from polyarch.builds.facts.inputs import DOCUMENTS, SecretObject
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.material import ignition
from polyarch.builds.machineos.material.credentials import has_helpers, one_form
from polyarch.builds.machineos.recording.ephemeral import CREDENTIALS, FILE
from polyarch.builds.plan.document import Write
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, SECRETS, Resource
from polyarch.objects import DOCKER_CONFIG_JSON, Unstructured
from polyarch.oci.auth.entries import MalformedDocument

T = TypeVar("T")
log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(vocabulary.RENDERED, "get"),)
"""RBAC rules in the cluster."""
NAMESPACE_RIGHTS: Final = (rule(SECRETS, "get", "create", "patch"), rule(CONFIGMAPS, "create", "patch"))
"""RBAC rules in the namespace of machine OS builds."""


class Unusable(Exception):  # noqa: N818 - what it is
    """A Secret that cannot be copied; the message quotes none of its content."""


class Reads(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[T]) -> T: ...


class Copies:
    """Makes the documents of ``prepare`` writes."""

    def __init__(self, client: Reads) -> None:
        self._client = client

    async def document(self, write: Write) -> dict[str, Any] | None:
        """The whole object; None if there is nothing to copy.

        Raises what the API server raises, and :class:`Unusable`.
        """
        source: Mapping[str, str] = write.body["source"]
        metadata = dict(write.body["metadata"])
        if source["as"] == CREDENTIALS:
            body = await self._credentials(write.namespace, source["of"])
            data = {DOCUMENTS[DOCKER_CONFIG_JSON]: base64.b64encode(body).decode()}
            return {"metadata": metadata, "type": DOCKER_CONFIG_JSON, "data": data}
        rendered = await self._client.get(vocabulary.RENDERED, source["of"], type=Unstructured)
        if source["as"] == FILE:
            text = self._file(rendered.document, source)
            return {"metadata": metadata, "data": {source["key"]: text}} if text is not None else None
        packed = gzip.compress(msgspec.json.encode(rendered.document, order="deterministic"), mtime=0)
        return {"metadata": metadata, "data": {source["key"]: base64.b64encode(packed).decode()}}

    def _file(self, rendered: Mapping[str, Any], source: Mapping[str, str]) -> str | None:
        """A file that cannot be read is left out, with a Warning: builds do without, as nodes would have to."""
        try:
            return ignition.file(rendered, source["path"])
        except ignition.UnreadableFile as error:
            log.warning("a file of a MachineConfig is left out", machine_config=source["of"], problem=str(error))
            return None

    async def _credentials(self, namespace: str, name: str) -> bytes:
        secret = await self._client.get(SECRETS, name, namespace=namespace, type=SecretObject)
        where = f"Secret {namespace}/{name}"
        text = (secret.data or {}).get(DOCUMENTS.get(secret.type, ""))
        if not text:
            raise Unusable(f"{where} is of type {secret.type!r} and holds no credentials of registries")
        try:
            body = base64.b64decode(text, validate=True)
            if has_helpers(body):
                log.warning("credential helpers are ignored: a Job has none", secret=f"{namespace}/{name}")
            return one_form(body)
        except MalformedDocument as error:
            raise Unusable(f"{where} cannot be read: {error}") from None
        except ValueError:
            raise Unusable(f"{where} is not base64") from None
