"""A sandbox that the workers of a test run share ends when the last test that needs it has ended.

An idle control plane costs a tenth of a core, and a run starts a dozen of them. Each worker collects all tests, so each
knows who needs a sandbox; what has ended they write into one file, and who completes a sandbox's list deletes it.
"""

import asyncio
import collections
import os
import tempfile
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SandboxError


def needed(
    items: Iterable[pytest.Item], fixtures: Collection[str], sandbox_of: Callable[[str, str], str]
) -> dict[str, set[str]]:
    """For each sandbox the files that use it. A file needs it to its end: fixtures of modules end there."""
    found: dict[str, set[str]] = {}
    for item in items:
        for fixture in set(getattr(item, "fixturenames", ())).intersection(fixtures):
            found.setdefault(sandbox_of(fixture, item.nodeid), set()).add(item.path.name)
    return found


class Endings:
    """What has ended in all workers of one run, and the sandboxes that can end with it.

    ``sandbox_of``: fixture and id of a test to what its sandbox is called. ``shared``: a folder of this run, for all
    its workers.
    """

    def __init__(
        self,
        items: Iterable[pytest.Item],
        fixtures: Collection[str],
        sandbox_of: Callable[[str, str], str],
        shared: Path,
        delete: Callable[[str], None],
    ) -> None:
        items = list(items)
        self._needed = needed(items, fixtures, sandbox_of)
        self._tests = collections.Counter(item.path.name for item in items)
        self._shared = shared
        self._delete = delete
        shared.mkdir(parents=True, exist_ok=True)

    def ended(self, file: str) -> None:
        """A test of this file has ended, with all its fixtures."""
        with (self._shared / "ended").open("a") as log:  # O_APPEND: lines of several workers do not mix
            log.write(f"{file}\n")
        ended = collections.Counter((self._shared / "ended").read_text().split())
        for sandbox, files in self._needed.items():
            if file in files and all(ended[each] >= self._tests[each] for each in files) and self._mine(sandbox):
                self._delete(sandbox)

    def _mine(self, sandbox: str) -> bool:
        """Whether this worker is the first that saw the list complete."""
        try:
            (self._shared / sandbox).mkdir()
        except FileExistsError:
            return False
        return True


class InBackground:
    """Deletes sandboxes while tests go on."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)

    def __call__(self, name: str) -> None:
        self._threads.submit(_delete, name)

    def close(self) -> None:
        self._threads.shutdown()


def _delete(name: str) -> None:
    try:
        asyncio.run(Sandbox.attach(name).delete())
    except SandboxError:
        return  # all its tests were passed over: nobody started it


def shared_folder(owner: int) -> Path:
    """Where the workers of the run with this pid meet."""
    return Path(tempfile.gettempdir(), f"polyarch-tests-{os.getuid()}-{owner}")
