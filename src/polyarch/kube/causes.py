"""Which exceptions are new: a traceback is logged once per cause, not once per object."""

from types import TracebackType


class Causes:
    """Remembers exceptions by type and line, up to ``limit`` of them; beyond that none counts as new."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._known: set[tuple[str, str, int]] = set()

    def is_new(self, error: BaseException) -> bool:
        """True the first time that an exception of this type comes from this line."""
        cause = (type(error).__name__, *_place(error.__traceback__))
        if cause in self._known or len(self._known) >= self._limit:
            return False
        self._known.add(cause)
        return True


def _place(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
