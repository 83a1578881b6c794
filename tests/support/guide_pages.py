"""A page of the guide as somebody does it who reads it: its files, its commands, and what they print.

A block of a page is run if its info string says so (``console run``): every line that begins with ``$`` is a command,
and the lines after it are what it prints, where ``…`` stands for anything. A block with the name of a file
(``yaml policy.yaml``) is that file. The blocks of a page run one after another.
"""

import asyncio
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guide"
CODE: Final = "echo $?"
"""A step that prints with which code the one before it has ended; any other has to end with 0."""
FILES: Final = ("yaml", "text", "html")
BLOCK: Final = re.compile(r"^```(\w+) ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING: Final = "…"
SECONDS: Final = 280


class Step(NamedTuple):
    """A command and what it prints, or a file and its content."""

    command: str
    expected: tuple[str, ...] = ()
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    for language, said, content in BLOCK.findall(page):
        if language == "console" and said == "run":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, *expected = part.splitlines()
                while command.count("'") % 2:  # it goes on until its quotation ends
                    command += f"\n{expected.pop(0)}"
                yield Step(command, tuple(line for line in expected if line))
        elif language in FILES:
            yield Step(content, file=said)


def differs(expected: tuple[str, ...], printed: list[str]) -> str | None:
    """The first expected line that is not printed where it should be; None if all are."""
    rest = iter(printed)
    for line in expected:
        if line == ANYTHING:
            continue
        parts = [re.escape(part.strip()) for part in line.split(ANYTHING)]
        # One \s+ for many blanks: a row of them would be tried in every way that they can share the blanks.
        pattern = re.compile(r".*?".join(re.sub(r"(\\ )+", r"\\s+", part) for part in parts))
        if not any(pattern.fullmatch(each.strip()) for each in rest):
            return line
    return None


async def follow(page: str, folder: Path, environment: Mapping[str, str]) -> int:
    """Does what the page of this name says; returns how many commands that were."""
    run, done = 0, None
    for step, after in pairwise([*steps((GUIDE / page).read_text(encoding="utf-8")), Step("")]):
        if step.file:
            (folder / step.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.file).write_text(step.command)
            continue
        if step.command == CODE and done is not None:
            assert step.expected == (str(done.returncode),), f"$ {done.args[-1]}\n{done.stdout}"
            continue
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-ec", step.command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0 or after.command == CODE, f"$ {step.command}\n{done.stdout}"
        missing = differs(step.expected, done.stdout.splitlines())
        assert missing is None, f"$ {step.command}\nprinted\n{done.stdout}\nand not: {missing}"
        run += 1
    return run
