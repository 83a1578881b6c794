"""The file that tells which pods a fingerprint was made of, for whoever compares it with a scheduler's (NE-085)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

log = structlog.get_logger(__name__)


class StatusFile:
    """Replaced as a whole, so that no reader sees half of it. That it cannot be written is logged, once per cause."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._beside = self._path.with_name(f".{self._path.name}.new")
        self._problem = ""

    def write(self, status: Mapping[str, Any]) -> None:
        try:
            self._beside.write_bytes(msgspec.json.encode(status))
            self._beside.replace(self._path)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("fingerprint status file cannot be written", path=str(self._path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
