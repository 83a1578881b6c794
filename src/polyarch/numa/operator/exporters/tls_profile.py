"""The TLS profile of an OpenShift cluster, as flags of an exporter (NO-065).

``spec.tlsSecurityProfile`` of the APIServer names a profile or lists versions and ciphers; ciphers have OpenSSL's names
there and those of IANA in flags. Source: github.com/openshift/api, config/v1, TLSProfiles; RFC 5289, RFC 7905. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

IANA_NAMES: Final = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}
"""Ciphers of TLS 1.2 that are safe; those of 1.3 cannot be chosen, and all others are too weak to be offered."""
LEAST: Final = "VersionTLS12"
VERSIONS: Final = (LEAST, "VersionTLS13")


class TlsPolicy(msgspec.Struct, frozen=True):
    """What an exporter offers."""

    min_version: str = ""
    """As Go names it; empty: the exporter's default."""
    ciphers: tuple[str, ...] = ()
    """IANA's names; empty: the exporter's default."""

    @classmethod
    def of(cls, profile: Mapping[str, Any] | None) -> "TlsPolicy":
        """Versions below TLS 1.2 and ciphers that nobody should offer are left out, whatever the profile allows."""
        if profile is None:
            return cls()
        kind = profile.get("type") or "Intermediate"
        if kind == "Modern":
            return cls("VersionTLS13")
        if kind in ("Old", "Intermediate"):
            return cls(LEAST, tuple(IANA_NAMES.values()))
        custom = profile.get("custom") or {}
        wanted = custom.get("minTLSVersion")
        version = wanted if wanted in VERSIONS else LEAST
        known = {**IANA_NAMES, **{name: name for name in IANA_NAMES.values()}}
        ciphers = tuple(known[each] for each in custom.get("ciphers") or () if each in known)
        return cls(version, () if version != LEAST else ciphers)
