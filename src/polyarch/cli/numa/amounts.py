"""Amounts as people read them: few digits, and never more than there is."""

from functools import lru_cache
from typing import Final

from polyarch.numa.fit.facts import is_memory
from polyarch.quantity import ABBREVIATED, abbreviated

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_ONE: Final = 1000
_LARGE: Final = 100
_DAY, _HOUR, _MINUTE = 86400, 3600, 60


@lru_cache(maxsize=1 << 12)
def short(resource: str, amount: int) -> str:
    """``6``, ``1500m``, ``12.3Gi``, ``9.2P``: of memory and of millions three digits or so, rounded down."""
    if not is_memory(resource):
        if amount >= ABBREVIATED * _ONE:
            return abbreviated(amount // _ONE)
        return f"{amount}m" if amount % _ONE else str(amount // _ONE)
    whole = amount // _ONE
    step = 0
    while whole >= 1024 ** (step + 1) and step + 1 < len(_UNITS):
        step += 1
    size = 1024**step
    tenths = whole * 10 // size
    text = str(tenths // 10) if tenths >= _LARGE * 10 or tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
    return text + _UNITS[step]


def age(seconds: float | None) -> str:
    """``12s``, ``5m``, ``3h``, ``2d``; nothing if nobody knows."""
    if seconds is None:
        return ""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
