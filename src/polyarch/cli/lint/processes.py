"""One work on many files, in as many processes as wanted (MF-090).

The results are the same and in the same order, however many there are (MF-041).
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.input.files import STDIN

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

FILES_PER_PROCESS = 200
"""Fewer are done sooner than another process starts."""


def over_files(work: Callable[[str], T], files: Sequence[str], *, jobs: int | None) -> list[T]:
    """``work`` on every file, in the order given; in several processes if there are many files (MF-090)."""
    processes = min(jobs if jobs is not None else (os.cpu_count() or 1), len(files) // FILES_PER_PROCESS)
    if processes < 2 or STDIN in files:
        return [work(path) for path in files]
    import multiprocessing  # with what it imports a twentieth of the start of a run that needs none of it

    # A copy of this process has everything that the work needs without being sent it.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    sys.stdout.flush()
    sys.stderr.flush()
    shares = []
    for number in range(processes):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_share, args=(work, files[number::processes], sending), daemon=True)
        process.start()
        sending.close()
        shares.append((process, receiving))
    results: list[Any] = [None] * len(files)
    try:
        for number, (_, receiving) in enumerate(shares):
            results[number::processes] = _received(receiving)
    finally:
        for process, receiving in shares:
            receiving.close()
            process.join(timeout=1)
            if process.is_alive():
                process.terminate()
                process.join()
    return results


def _share(work: Callable[[str], Any], files: Sequence[str], sending: "Connection[Any, Any]") -> None:
    """In a process of its own: the work on some of the files, or the error that ended it."""
    try:
        results: Any = [work(path) for path in files]
    except Exception as error:  # noqa: BLE001 - raised again in the process that waits for it
        results = error
    sending.send(results)
    sending.close()


def _received(receiving: "Connection[Any, Any]") -> list[Any]:
    try:
        results = receiving.recv()
    except EOFError:
        raise CouldNotComplete("a worker process died, perhaps out of memory; try --jobs 1") from None
    if isinstance(results, Exception):
        raise results
    found: list[Any] = results
    return found
