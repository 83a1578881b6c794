"""Builds an inspector with all its parts, and closes them together (RG-003).

The command line and the processes in a cluster need the same parts with different settings: addresses they may reach,
a cache on disk or none, waiting for a registry or not. ``Wiring`` holds these choices.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.oci.auth.credentials import CredentialStore, NoCredentials
from polyarch.oci.cache.disk import DiskCache
from polyarch.oci.cache.memory import Backing, Cache
from polyarch.oci.inspect import Inspector
from polyarch.oci.metrics import Metrics, NoMetrics
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.signature_policy import SignaturePolicy
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.tls import Trust, TrustSettings


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for :func:`open_inspector`. The defaults are the command line's.

    In a cluster, pod authors choose the hosts (RG-103, PL-851): start ``settings`` from ``CLUSTER`` or ``PLACEMENT``
    and use ``AddressPolicy.of("cluster", allow=…)`` as ``policy``.
    """

    settings: InspectorSettings = InspectorSettings()
    configuration: Configuration = Configuration()
    policy: AddressPolicy = AddressPolicy()
    trust: TrustSettings | None = None
    """None: the system's store and the directories of RG-100."""
    cache_directory: Path | None = None
    """Directory of the cache on disk; None: memory only (RG-114)."""
    answers: AnswerFile | None = None
    offline: bool = False
    signatures: SignaturePolicy | None = None
    """The signature policy; None: all images are accepted (RG-107)."""


@asynccontextmanager
async def open_inspector(
    wiring: Wiring | None = None,
    *,
    credentials: CredentialStore | None = None,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Inspector]:
    """Context manager for an inspector; on exit it closes connections and saves the cache.

    ``notice`` receives messages for the user: waits, warnings of registries, a damaged cache. Raises ``InvalidSetting``
    if a certificate file or a proxy of the environment is unusable.
    """
    from polyarch.oci.transport.http import AiohttpTransport  # half of the start-up time

    wiring = wiring or Wiring()
    clock = clock or SystemClock()
    metrics = metrics or NoMetrics()
    transport = AiohttpTransport(policy=wiring.policy, trust=Trust(wiring.trust))
    backing: Backing | None = None
    if wiring.cache_directory is not None and not wiring.offline:
        backing = DiskCache(wiring.cache_directory, clock, warn=notice)
    inspector = Inspector(
        transport=transport,
        configuration=wiring.configuration,
        credentials=credentials or NoCredentials(),
        cache=Cache(clock, backing=backing, metrics=metrics),
        answers=wiring.answers,
        offline=wiring.offline,
        clock=clock,
        settings=wiring.settings,
        policy=wiring.policy,
        signatures=wiring.signatures,
        metrics=metrics,
        notice=notice,
    )
    try:
        yield inspector
    finally:
        await inspector.close()
        await transport.close()
