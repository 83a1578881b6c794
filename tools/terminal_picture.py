"""A picture of what a command shows on a terminal, taken from a real run: ``docs/pictures/*.svg``.

``python tools/terminal_picture.py OUT.svg TITLE COLUMNS COMMAND ARGUMENT…`` runs the command on a pseudo-terminal of so
many columns, lets its live display draw over itself as a terminal would, and writes the last frame as SVG. The home
folder is shown as ``~``. A command that fails makes no picture. ``make picture`` takes that of the demo.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

CURSOR = re.compile(r"\x1b\[(\d*)([A-HJKsu])|\x1b\[\?25[lh]")


def run(columns: int, command: list[str]) -> str:
    """Everything the command wrote to its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "200"}
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
    written = b""
    try:
        while chunk := os.read(terminal, 65536):
            written += chunk
    except OSError:
        pass  # the terminal is gone when the command has ended
    _, status = os.waitpid(pid, 0)
    shown = written.decode(errors="replace")
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} ended with {code}, so there is no picture of it:\n{shown[-2000:]}")
    return shown


def last_frame(written: str) -> list[str]:
    """The lines that stand at the end, after cursor movements; colours stay in the lines."""
    lines = [""]
    row = 0
    position = 0
    while position < len(written):
        match = CURSOR.match(written, position)
        if match:
            count = int(match[1] or 1) if match[1] or match[2] else 1
            if match[2] == "A":
                row = max(0, row - count)
            elif match[2] == "K":
                lines[row] = ""
            position = match.end()
        elif written[position] == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
            position += 1
        elif written[position] == "\r":
            if written[position + 1 : position + 2] != "\n":
                lines[row] = ""
            position += 1
        else:
            lines[row] += written[position]
            position += 1
    return lines


def main(out: str, title: str, columns: str, *command: str) -> None:
    width = int(columns)
    home = str(Path.home())
    lines = [line.replace(home, "~") for line in last_frame(run(width, list(command))) if line.strip()]
    console = Console(record=True, width=width, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    console.save_svg(out, title=title)


if __name__ == "__main__":
    main(*sys.argv[1:])
