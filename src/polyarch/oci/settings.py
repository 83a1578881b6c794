"""What an ``Inspector`` may be told: times, limits and manners, with the defaults of the command line.

``CLUSTER`` is what long-running processes start from: they never sleep in a worker, ask a repository anonymously before
they use anybody's credentials, and leave a reserve of a rate limit for the nodes that pull.
"""

import msgspec


class InspectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, counts and host names; each with the requirement it comes from."""

    timeout: float = 60.0
    """The time requests for one image may take together; waiting in line or for a pause does not count (RG-051)."""
    max_wait: float = 60.0
    """How long one image may wait for pauses of rate limits in all (RG-062)."""
    wait: bool = True
    """Wait for such a pause, or answer ``rate-limited`` at once (RG-062)."""
    attempts: int = 4
    """Tries of one request that fails for passing reasons (RG-061)."""
    tag_ttl: float = 600.0
    """How long a tag is believed to name the same digest (RG-110)."""
    proof_ttl: float = 3600.0
    """How long a success proves that a credential may read a repository (RG-110)."""
    public_ttl: float = 24 * 3600.0
    """How long a repository is known as public after an anonymous success, with ``public_probe`` (RG-112)."""
    private_ttl: float = 3600.0
    """How long a repository is not asked anonymously again after that was refused (RG-112)."""
    negative_ttl: float = 60.0
    """How long ``not-found`` and refusals are answered from memory (RG-060)."""
    content_error_ttl: float = 600.0
    """How long a digest whose content is unusable is answered from memory (RG-060)."""
    revalidate_interval: float = 5.0
    """How old a check of a tag may be that is good enough for ``fresh=True`` (RG-113); 0.25 for placement (PL-402)."""
    circuit_rest: float = 30.0
    """How long a host is left alone after five failed connections (RG-061); 5 for placement (PL-402)."""
    patience: float = 5.0
    """How long a host may be silent before that counts like a connection that failed, where the time of the image ends
    before that of the request (RG-064)."""
    stale_for: float = 0.0
    """How old a reading may be that stands in for a check that failed (PL-407); 0: never."""
    public_probe: bool = False
    """Ask each repository anonymously first (RG-112)."""
    head_first_hosts: tuple[str, ...] = ("docker.io",)
    """Registries that charge for GET but not for HEAD (RG-031)."""
    reserve: int = 0
    """GETs of a host stop when its rate limit has no more than this left (RG-063); 0: use it up."""
    requests_per_host: int = 8
    requests: int = 64
    """Requests at a time to one host and in all (RG-052)."""
    waiting_per_tenant: int | None = None
    """How many requests of one tenant may wait for one host (PL-851); ``None``: any number."""
    waiting: int | None = None
    """How many requests may wait for one host, and for a free one of all slots (PL-854); ``None``: any number."""
    layouts: bool = False
    """Whether ``oci:`` names a directory of this machine (RG-120): only where the user names the images, never where
    pods or files that somebody wrote do."""
    insecure_loopback: bool = True
    """Whether loopback hosts may be spoken to without verified TLS: in the command line only (RG-101)."""


CLUSTER = InspectorSettings(
    wait=False,
    public_probe=True,
    reserve=10,
    waiting_per_tenant=64,
    waiting=1000,
    insecure_loopback=False,
    timeout=30.0,
)
PLACEMENT = msgspec.structs.replace(CLUSTER, revalidate_interval=0.25, circuit_rest=5.0)
