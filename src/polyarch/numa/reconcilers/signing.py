"""The serving certificate of the exporters where the operator signs it itself (NO-064).

CA and leaf are Secrets beside the exporters. The CA is one of its own: that of the webhooks is trusted by API servers,
and has no business on every node.
"""

from typing import Final

from polyarch.clock import Clock
from polyarch.kube.certificate_rotation import SelfManaged, SelfManagedSettings
from polyarch.kube.client import Client
from polyarch.kube.owners import Owner
from polyarch.numa.operator.operator_rights import AUTHORITY
from polyarch.numa.operator.outcome import ServingCertificate
from polyarch.operating import names as shared
from polyarch.operating.labels import labels

EVERY: Final = 3600.0
"""Seconds between two looks at a certificate that is good for months."""


class ExporterCertificate:
    """Kept as long as plans ask for it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: tuple[ServingCertificate, SelfManaged] | None = None
        self._due = 0.0

    async def keep(self, wanted: ServingCertificate | None, owner: Owner) -> None:
        """Makes or renews it when it is time to. Raises ``KubernetesError``."""
        if wanted is None:
            self._kept = None
            return
        if self._kept is None or self._kept[0] != wanted:
            self._kept, self._due = (wanted, SelfManaged(self._client, _settings(wanted, owner), clock=self._clock)), 0
        now = self._clock.monotonic()
        if now >= self._due:
            managed = self._kept[1]
            await managed.reconcile(managed.key)
            self._due = now + EVERY


def _settings(wanted: ServingCertificate, owner: Owner) -> SelfManagedSettings:
    return SelfManagedSettings(
        namespace=wanted.namespace,
        names=wanted.dns_names,
        secret=wanted.secret,
        authority_secret=AUTHORITY,
        labels=labels(shared.NUMA_EXPORTER),
        owner=owner.reference() | {"blockOwnerDeletion": False},
        interval=EVERY,
    )
