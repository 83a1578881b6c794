"""The Secrets of the serving certificates, kept by the operator's leader.

Self-managed, the leader makes a CA and one leaf for all services. In the other modes somebody else writes the leaves.
In every mode ``polyarch-certificates`` has ``record.key``: the keys with which processes sign decision annotations and
tell reviews of API servers from made-up ones, the newest first. A new one is made every 90 days and the last two count,
so that annotations stay valid, and so do registered paths while replicas load the new key.
"""

import base64
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from polyarch import names as shared
from polyarch.clock import Clock
from polyarch.kube.certificate_rotation import LOADING, SelfManaged, SelfManagedSettings
from polyarch.kube.client import Client
from polyarch.kube.controller import RequeueAfter
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import SECRETS, SERVICE_ACCOUNTS
from polyarch.kube.review_tokens import has_tokens
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Secret, Unstructured
from polyarch.operator import certificates
from polyarch.operator.certificates import RECORD_KEY
from polyarch.operator.operands import know_tokens
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.placement.decision import MAX_KEYS, parse_keys

log = structlog.get_logger(__name__)

MADE_AT: Final = f"{names.OWN_GROUP}/record-key-made-at"
"""Annotation of the Secret: when the newest key was made."""
KEY_LIFETIME: Final = timedelta(days=90)
KEY_BYTES: Final = 32
INTERVAL: Final = 60.0


class ServingSecrets:
    """Enqueue :attr:`key` once; each reconcile looks at everything and asks for the next.

    ``owner``: an owner reference for the Secrets, so that none outlives the operator. ``changed`` is called when the CA
    to trust is another one.
    """

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        owner: Mapping[str, Any] | None,
        changed: Callable[[], None] = lambda: None,
        clock: Clock,
    ) -> None:
        self.key = ObjectKey(settings.namespace, names.CERTIFICATES_SECRET)
        self._client = client
        self._clock = clock
        self._owner = owner
        self._changed = changed
        self._keys: tuple[bytes, ...] | None = None
        """The keys of ``record.key``; None before the Secret was read."""
        self._key_made_at: datetime | None = None
        self._is_newest_used = True
        self._makes_secret = settings.certificates == "service-ca"
        self.managed: SelfManaged | None = None
        if settings.certificates == "self-managed":
            self.managed = SelfManaged(client, self_managed_settings(settings, owner), clock=clock)

    async def reconcile(self, key: ObjectKey) -> RequeueAfter:
        """First the certificates, then the keys of records."""
        before = self.bundle(""), self._keys
        after = await self.managed.reconcile(key) if self.managed is not None else RequeueAfter(INTERVAL)
        await self._keep_record_key()
        if (self.bundle(""), self._keys) != before or not self._is_newest_used:
            self._is_newest_used = True
            self._changed()
        return after

    @property
    def is_known(self) -> bool:
        """Whether webhooks can be registered: it is known whom to trust, or somebody else sees to that, and with which
        tokens."""
        return self._keys is not None and (self.managed is None or bool(self.bundle("")))

    def bundle(self, found: str) -> bytes:
        """The CAs (PEM) for a configuration whose ``caBundle`` is ``found``; empty if somebody else writes them."""
        return base64.b64decode(self.managed.wanted(found)) if self.managed is not None else b""

    def review_key(self, registered: Unstructured | None, deployment: Unstructured | None) -> bytes:
        """The key for the tokens of a webhook configuration, whose paths this Deployment serves; empty: none yet. A key
        that was just made is used when every replica has had time to load it."""
        now = self._clock.now()
        keys = self._keys or ()
        if not keys:
            return b""
        is_registered = registered is not None and has_tokens(registered.document)
        if not is_registered and (deployment is None or not know_tokens(deployment.document, now)):
            self._is_newest_used = False
            return b""
        is_new = self._key_made_at is not None and (now - self._key_made_at).total_seconds() < LOADING
        if is_new and len(keys) > 1:
            self._is_newest_used = False
            return keys[1]
        return keys[0]

    async def _keep_record_key(self) -> None:
        namespace = self.key.namespace
        try:
            known = await self._client.get(SECRETS, self.key.name, namespace=namespace, type=Secret)
        except NotFound:
            if not self._makes_secret:
                self._keys = ()
                return  # who makes the certificate makes the Secret
            known = Secret()
        now = self._clock.now()
        keys = record_keys((known.data or {}).get(RECORD_KEY) or b"")
        if keys and not is_old(known.metadata, now):
            self._keys, self._key_made_at = keys, made_at(known.metadata)
            return
        made = (secrets.token_bytes(KEY_BYTES), *keys)[:MAX_KEYS]
        content = key_file(made)
        metadata: dict[str, Any] = {"annotations": {MADE_AT: now.strftime("%Y-%m-%dT%H:%M:%SZ")}}
        data = {RECORD_KEY: base64.b64encode(content).decode()}
        if known.metadata.resource_version:
            metadata["resourceVersion"] = known.metadata.resource_version
            change = MergePatch({"metadata": metadata, "data": data})
            await self._client.patch(SECRETS, self.key.name, change, namespace=namespace)
        else:
            metadata |= {"name": self.key.name, "namespace": namespace}
            metadata |= {"ownerReferences": [self._owner]} if self._owner is not None else {}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
            await self._client.create(SECRETS, secret, namespace=namespace)
        self._keys, self._key_made_at = made, now
        log.info(
            "created a key for decision annotations",
            secret=str(self.key),
            former_ones_kept=min(len(keys), MAX_KEYS - 1),
        )


def self_managed_settings(settings: OperatorSettings, owner: Mapping[str, Any] | None) -> SelfManagedSettings:
    """One leaf for all services of the namespace, trusted by our webhook configurations and the CPPC's conversion.

    Where OLM registers the webhooks of custom resources, they trust OLM's CA and are left alone.
    """
    namespace = settings.namespace
    ours = settings.resource_webhooks == "operator"
    return SelfManagedSettings(
        namespace=namespace,
        names=certificates.dns_names(namespace),
        secret=names.CERTIFICATES_SECRET,
        authority_secret=names.AUTHORITY_SECRET,
        mutating_webhooks=(names.WEBHOOK_CONFIGURATION, shared.TAINTS, *([names.OPERATOR] if ours else ())),
        validating_webhooks=(names.OPERATOR,) if ours else (),
        conversions=(str(CPPCS),) if ours else (),
        owner=owner,
        interval=INTERVAL,
    )


async def operator_account(client: Client, namespace: str) -> dict[str, Any] | None:
    """An owner reference to the operator's ServiceAccount; None if it runs with another identity."""
    try:
        found = await client.get(SERVICE_ACCOUNTS, names.OPERATOR, namespace=namespace, type=PartialObjectMetadata)
    except NotFound:
        return None
    return {"apiVersion": "v1", "kind": "ServiceAccount", "name": names.OPERATOR, "uid": found.metadata.uid}


def record_keys(content: bytes) -> tuple[bytes, ...]:
    """The keys of a file; empty if it is damaged."""
    try:
        return parse_keys(content)
    except ValueError:
        return ()


def key_file(keys: tuple[bytes, ...]) -> bytes:
    """The file as processes read it: the last two keys, the newest first."""
    return b"".join(base64.b64encode(key) + b"\n" for key in keys[:MAX_KEYS])


def made_at(metadata: ObjectMeta) -> datetime | None:
    """When the newest key was made; None: unknown."""
    try:
        return msgspec.convert((metadata.annotations or {}).get(MADE_AT, ""), datetime)
    except msgspec.ValidationError:
        return None


def is_old(metadata: ObjectMeta, now: datetime) -> bool:
    """Whether a new key is due; one of unknown age may be old."""
    made = made_at(metadata)
    return made is None or now - made >= KEY_LIFETIME
