"""Starts polyarch's processes in a moment: it has imported everything, and forks one for each line that it reads.

The argument is the module to import, that of a role. A line of standard input is ``{"arguments": […], "log": PATH}``;
the answer is a line with the pid. What a child prints goes to its log, too. A scenario kills a process dozens of times;
each start from nothing would take seconds.
"""

import importlib
import json
import os
import signal
import sys

from polyarch.cli import main


def child(arguments: list[str], log: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os._exit(main(arguments))


importlib.import_module(sys.argv[1])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if not pid:
        child(order["arguments"], order["log"])
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()
