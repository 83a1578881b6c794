"""The directories that configuration is taken from: a few, so that an argument cannot turn any file of a host into one
(NE-134).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from polyarch.numa.exporter.configuration.invalid import InvalidConfiguration

DEFAULT: Final = "/etc/rte"
FIXED: Final = (DEFAULT, "/run/rte", "/var/rte", "/usr/local/etc/rte", "/etc/resource-topology-exporter")


def allowed(home: Path, uid: int, added: Sequence[str]) -> tuple[Path, ...]:
    """All of them, those of ``--allow-config-root`` last."""
    return (
        *(Path(root) for root in FIXED),
        Path(f"/run/user/{uid}/rte"),
        home / ".rte",
        *(Path(root) for root in added),
    )


def accepted(directory: Path, roots: Sequence[Path]) -> Path:
    """The directory without symlinks, if it is one of the roots or below one. Raises ``InvalidConfiguration``.

    A root's own last component is not followed: who may write beside it could make it lead anywhere.
    """
    try:
        real = directory.resolve()
        places = [root.parent.resolve() / root.name for root in roots]
    except (OSError, RuntimeError, ValueError) as error:  # a loop of symlinks, a NUL
        raise InvalidConfiguration(f"{directory}: cannot be resolved: {error}") from None
    if any(real.is_relative_to(place) for place in places):
        return real
    listed = ", ".join(str(root) for root in roots)
    raise InvalidConfiguration(
        f"{directory}: configuration is read only below {listed}; move it, or add --allow-config-root {real}"
    )
