"""Settings of an ``Inspector``: times, limits and modes, with the defaults of the command line.

``CLUSTER`` is the base for long-running processes: they never sleep in a worker, ask a repository anonymously before
using credentials, and leave a reserve of each rate limit for the nodes that pull.
"""

import sys
from typing import NamedTuple

import msgspec

MIB = 1024 * 1024


class Share(NamedTuple):
    """How tenants share one scarce thing: slots, waiting places or bytes.

    Whoever comes first may take all of ``shared``, up to ``per_tenant``. Beyond it, each tenant may still have
    ``minimum``, until all together have ``maximum``. So nothing is idle while somebody wants it, and a tenant that asks
    for little gets it at once, whatever others hold and for however long.
    """

    shared: int
    minimum: int = 0
    maximum: int = 0
    """At least ``shared``; a smaller number stands for ``shared``."""
    per_tenant: int | None = None
    """``None``: no limit below ``shared``."""


NAME_LOOKUPS = Share(16, minimum=2, maximum=64)
"""Lookups of names at a time, each a thread."""
IDLE_CONNECTIONS = 128
"""Connections that are kept for the next request."""


class InspectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, counts and host names; each with its requirement."""

    timeout: float = 60.0
    """Total time of the requests for one image; waiting in the queue or for a pause does not count."""
    max_wait: float = 60.0
    """Total time that one image may wait for pauses of rate limits."""
    wait: bool = True
    """Wait for such a pause; if False, answer ``rate-limited`` at once."""
    attempts: int = 4
    """Attempts of one request that fails for transient reasons."""
    tag_ttl: float = 600.0
    """How long the digest of a tag is cached."""
    proof_ttl: float = 3600.0
    """How long a success proves that a credential may read a repository."""
    public_ttl: float = 24 * 3600.0
    """How long a repository counts as public after an anonymous success, with ``public_probe``."""
    private_ttl: float = 3600.0
    """How long a repository is not asked anonymously again after a refusal."""
    negative_ttl: float = 60.0
    """How long ``not-found`` and refusals are cached."""
    content_error_ttl: float = 600.0
    """How long the error of unusable content is cached."""
    revalidate_interval: float = 5.0
    """Maximum age of a tag's check for ``fresh=True``; 0.25 for placement."""
    circuit_rest: float = 30.0
    """How long no requests go to a host after five failed connections; 5 for placement."""
    patience: float = 5.0
    """How long a host may be silent until that counts as a failed connection, where the image's time ends before the
    request's."""
    stale_for: float = 0.0
    """Maximum age of a reading used in place of a failed check; 0: never."""
    public_probe: bool = False
    """Ask each repository anonymously first."""
    head_first_hosts: tuple[str, ...] = ("docker.io",)
    """Registries that charge for GET but not for HEAD."""
    reserve: int = 0
    """GETs of a host stop when its rate limit has no more than this left; 0: use it up."""
    requests_per_host: int = 8
    requests: int = 64
    """Requests at a time to one host and in all."""
    guaranteed_per_host: int = 0
    guaranteed: int = 0
    """Requests that each tenant may have at a time at one host and in all, whatever the others have; with them there
    are at most four times as many."""
    waiting_per_tenant: int | None = None
    """Maximum of one tenant's waiting requests per host; ``None``: unlimited."""
    waiting: int | None = None
    """Waiting requests per host, and for a slot in all, a quarter of them of one tenant; ``None``: unlimited. Beyond
    them each tenant may have its ``waiting_per_tenant``, until there are four times as many."""
    bytes_in_flight: Share = Share(256 * MIB)
    """Bytes of bodies that are being received, or belong to images that are being looked up."""
    layouts: bool = False
    """Read ``oci:`` references as local directories: only where the user names the images, never for images of
    pods or files."""
    insecure_loopback: bool = True
    """Allow unverified TLS and plain HTTP to loopback hosts: on the command line only."""

    @property
    def slots_per_host(self) -> Share:
        return _beyond(self.requests_per_host, self.guaranteed_per_host)

    @property
    def slots(self) -> Share:
        return _beyond(self.requests, self.guaranteed)

    @property
    def copies(self) -> Share:
        """Blobs that are copied at a time, over all hosts."""
        return _beyond(max(1, min(self.requests, self.requests_per_host) // 2), self.guaranteed_per_host // 2)

    @property
    def waiting_for_host(self) -> Share | None:
        limited = self.waiting is not None or self.waiting_per_tenant is not None
        return self._waiting(self.waiting_per_tenant) if limited else None

    @property
    def waiting_for_slot(self) -> Share | None:
        return None if self.waiting is None else self._waiting(self.waiting // 4)

    def _waiting(self, per_tenant: int | None) -> Share:
        shared = sys.maxsize if self.waiting is None else self.waiting
        return _beyond(shared, self.waiting_per_tenant or 0)._replace(per_tenant=per_tenant)


def _beyond(shared: int, minimum: int) -> Share:
    return Share(shared, minimum=minimum, maximum=4 * shared if minimum else shared)


CLUSTER = InspectorSettings(
    wait=False,
    public_probe=True,
    reserve=10,
    guaranteed_per_host=2,
    guaranteed=4,
    bytes_in_flight=Share(24 * MIB, per_tenant=8 * MIB, minimum=128 * 1024, maximum=40 * MIB),
    waiting_per_tenant=64,
    waiting=1000,
    insecure_loopback=False,
    timeout=30.0,
)
PLACEMENT = msgspec.structs.replace(CLUSTER, revalidate_interval=0.25, circuit_rest=5.0)
