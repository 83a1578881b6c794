"""Which kind of table there is: arrays where numpy is installed (extra ``numa``), else lists. Pure."""

from collections.abc import Sequence
from typing import Final, Protocol

from polyarch.numa.scheduling.fleet.lists import ListTable
from polyarch.numa.scheduling.fleet.question import Table


class MakesTable(Protocol):
    """A kind of table."""

    def __call__(self, cells: int, resources: Sequence[str], *, by_groups: bool) -> Table:
        """``by_groups``: it will be asked by groups."""


def _fastest() -> MakesTable:
    try:
        from polyarch.numa.scheduling.fleet.arrays import ArrayTable
    except ImportError:
        return ListTable
    return ArrayTable


FASTEST: Final[MakesTable] = _fastest()
