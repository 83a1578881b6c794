"""Configuration of the distribution registry: storage in a folder, indexes of any shape, clients only by the front."""

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
        # Relative redirects, so that clients keep using the front.
        "http": {"addr": address, "secret": secret, "relativeurls": True},
        # Accept indexes with missing children, without platforms, nested or empty (SB-005).
        "validation": {"manifests": {"indexes": {"platforms": "none"}}},
    }


def environment(inherited: dict[str, str]) -> dict[str, str]:
    """Disables traces, which the registry would otherwise send to a collector on localhost."""
    return {**inherited, "OTEL_TRACES_EXPORTER": "none"}
