"""The distribution registry as we run it: the filesystem, any shape of index, reached through the front only."""

from pathlib import Path


def configuration(root: Path, address: str, secret: str) -> dict[str, object]:
    """``config.yml``, as JSON. ``address`` is a loopback ``host:port``."""
    return {
        "version": "0.1",
        "log": {"level": "warn", "formatter": "json", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(root)},
            "delete": {"enabled": True},
            "cache": {"blobdescriptor": "inmemory"},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        # Relative locations, so that clients stay with the front.
        "http": {"addr": address, "secret": secret, "relativeurls": True},
        # Indexes with missing children, without platforms, nested or empty are what one wants to try out (SB-005).
        "validation": {"manifests": {"indexes": {"platforms": "none"}}},
    }


def environment(inherited: dict[str, str]) -> dict[str, str]:
    """Without this the registry sends traces to a collector on localhost that nobody runs."""
    return {**inherited, "OTEL_TRACES_EXPORTER": "none"}
