"""A file per node whose object is not explained, as the scheduler plugin writes it for ``cacheResyncDebug`` (NS-107).

Tools that compare such files with what the node's exporter writes find the pods that one side alone counts.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

log = structlog.get_logger(__name__)

WAITING: Final = 64
"""Files that may wait to be written; beyond it the oldest are not."""


class Dumps:
    """Writes in the background: a slow disk delays no answer."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._news = asyncio.Event()
        self._problem = ""

    def write(self, node: str, document: dict[str, Any]) -> None:
        """The file of this node says so soon."""
        self._waiting.pop(node, None)
        self._waiting[node] = document
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._news.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                node = next(iter(self._waiting))
                document = self._waiting.pop(node)
                await asyncio.to_thread(self._replace, node, document)

    def _replace(self, node: str, document: dict[str, Any]) -> None:
        """As a whole, so that no reader sees half of it. That it cannot be written is logged once per cause."""
        path = self._directory / f"{node}.json"
        beside = path.with_name(f".{path.name}.new")
        try:
            beside.write_bytes(msgspec.json.encode(document))
            beside.replace(path)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("dump cannot be written", path=str(path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
