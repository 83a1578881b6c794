"""Times as the API server writes them, in seconds since 1970, and back."""

from datetime import UTC, datetime


def seconds(text: str | None) -> float | None:
    """None for no time, and for a text that is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def written(time: float | None) -> str | None:
    """RFC 3339 with whole seconds, as Kubernetes writes it; None stays None."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
