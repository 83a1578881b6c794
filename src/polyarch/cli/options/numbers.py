"""Numbers that an option takes within bounds. A type alone lets through what no work can be done with, such as nan."""

from polyarch.cli.errors import UsageError


def check_seconds(option: str, seconds: float, *, may_be_zero: bool = False) -> None:
    """:class:`UsageError` unless it is a number of seconds that ends; ``may_be_zero``: 0 is one."""
    if may_be_zero and seconds == 0:
        return
    if not 0 < seconds < float("inf"):
        expected = "a number of seconds, 0 or more" if may_be_zero else "a number of seconds greater than 0"
        raise UsageError(f"{option} {seconds:g}: expected {expected}")
