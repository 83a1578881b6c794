"""Finds the program that an image starts in its layers, from the top down.

Layers are read from the top because the program is usually in one of the last, and upper layers hide lower ones: the
search mostly ends long before everything was read. Of each layer only names are kept. A lookup that depends on an
unread layer is repeated when that layer is known.

Pure: no I/O."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated

import msgspec

from polyarch.oci.documents import CONFIG_LIMIT, check_size, decode
from polyarch.oci.image.layers import Member, clean_path

MAX_PROGRAMS = 4
"""Maximum of programs looked at of one image: wrappers and what they start."""
MAX_STEPS = 8
"""Maximum of links and ``#!`` lines followed."""
LONGEST_SHELL_TEXT = 64 * 1024
"""Characters of a ``sh -c`` text that is read; splitting it takes time that grows faster than the text."""
LONGEST_OPTIONS = 64
MAX_NAMES = 200_000
"""Maximum of members kept per image; the largest images have a tenth of that."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


class ProgramNotFound(Exception):  # noqa: N818 - it says how the search ended
    """The program was not found; the text is a clause that says why."""


class Program(msgspec.Struct, frozen=True, gc=False):
    """The file the kernel would load; for a script its interpreter."""

    path: str
    head: bytes
    interprets: bool = False
    """It is the interpreter of a script."""


class Entrypoint(msgspec.Struct, frozen=True, gc=False):
    """What an image starts: the first word of its entry point or command, and the directories to search."""

    command: str
    search: tuple[str, ...]
    folder: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The possible paths of the command, in order, from the root."""
        if "/" in self.command:
            return (clean_path(posixpath.join(self.folder, self.command)),)
        return tuple(clean_path(posixpath.join(self.folder, each, self.command)) for each in self.search)


class StartCommand(msgspec.Struct, frozen=True, gc=False):
    """What an image starts: the program, then those that it starts in turn, as far as the words say it."""

    programs: tuple[Entrypoint, ...]
    argument: Entrypoint | None = None
    """The first word of ``Cmd`` after an entry point: a program if the entry point is a script that ends with
    ``exec "$@"``, as most are."""


def read_start_command(config: bytes) -> StartCommand:
    """The start command in a config (image specification, ``config``). Raises `ContentError`; :class:`ProgramNotFound`
    if there is none.
    """
    check_size("config", len(config), CONFIG_LIMIT)
    settings = decode(config, _Config, "the config").config or _Settings()
    words = [*(settings.entrypoint or ()), *(settings.command or ())]
    if not words or not words[0]:
        raise ProgramNotFound("the image names no program to start")
    path = next((each[5:] for each in reversed(settings.environment or []) if each.startswith("PATH=")), DEFAULT_PATH)
    search, folder = tuple(each for each in path.split(":") if each), settings.folder or "/"
    programs = dict.fromkeys(islice(_programs(words), MAX_PROGRAMS))
    argument = settings.command[0] if settings.entrypoint and settings.command else ""
    return StartCommand(
        tuple(Entrypoint(each, search, folder) for each in programs),
        Entrypoint(argument, search, folder) if argument and argument not in programs else None,
    )


_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})
_WRAPPERS: Mapping[str, int] = {
    **dict.fromkeys(("tini", "tini-static", "docker-init", "dumb-init", "catatonit", "env", "nohup", "nice"), 0),
    **dict.fromkeys(("su-exec", "gosu", "timeout", "chroot"), 1),
}
"""Programs that start the one in their arguments, and how many arguments of their own come before it."""
_WITH_VALUE = frozenset({"-e", "-p", "-n", "-u", "-k", "-s", "-r", "-C", "-g"})
"""Options of theirs that take a value as a word of its own."""
_SHELL_WORDS = frozenset(
    {"[", ":", ".", "cd", "echo", "eval", "export", "false", "if", "printf", "set", "sleep", "source", "test", "then"}
    | {"trap", "true", "ulimit", "umask", "unset", "wait", "while", "for", "do", "done", "fi", "else", "case", "{", "("}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def _programs(words: Sequence[str]) -> Iterator[str]:
    """The program of a command, then those that it starts: behind inits, changes of user and ``sh -c``."""
    for _ in range(MAX_STEPS):
        if not words or not words[0]:
            return
        name = posixpath.basename(words[0])
        yield words[0]
        if name in _SHELLS:
            yield from _of_shell(words[1:])
            return
        if name not in _WRAPPERS:
            return
        words = _wrapped(words[1:], _WRAPPERS[name])


def _wrapped(words: Sequence[str], own: int) -> Sequence[str]:
    at = 0
    while at < len(words) and (words[at].startswith("-") or _ASSIGNMENT.fullmatch(words[at])):
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[at + own :]


def _takes_text(word: str) -> bool:
    """Whether it is ``-c``, or has it among other options, such as ``-ec``."""
    options = word[1:LONGEST_OPTIONS]
    return (
        word[:1] == "-" and len(word) <= LONGEST_OPTIONS and "c" in options and options.isalpha() and options.islower()
    )


def _of_shell(words: Sequence[str]) -> Iterator[str]:
    """The programs of ``sh -c TEXT`` that can be told without a shell; of ``sh FILE`` none."""
    at = next((at for at, word in enumerate(words) if _takes_text(word)), None)
    if at is None or at + 1 >= len(words) or len(words[at + 1]) > LONGEST_SHELL_TEXT:
        return
    arguments = words[at + 3 :]
    lexer = shlex.shlex(words[at + 1], posix=True, punctuation_chars=True)
    lexer.commenters = ""
    command: list[str] = []
    try:
        for word in [*lexer, ";"]:
            if not set(word) <= set(";&|()<>"):
                command.append(word)
                continue
            yield from _of_simple_command(command, arguments)
            command = []
    except ValueError:  # an open quotation
        return


def _of_simple_command(command: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    words = [word for at, word in enumerate(command) if at or not _ASSIGNMENT.fullmatch(word)]
    if words and words[0] == "exec":
        words = words[1:]
    if words and words[0] == "$@":
        words = [*arguments]
    if words and words[0] not in _SHELL_WORDS and "$" not in words[0]:
        yield from _programs(words)


class ProgramSearch:
    """Searches for the program of a :class:`Entrypoint` in layers fed from the top down, member by member."""

    def __init__(self, start: Entrypoint) -> None:
        self._start = start
        self._layers: list[_Layer] = []
        self._names = 0
        self._awaited = start.paths[0] if start.paths else ""

    def begin_layer(self) -> None:
        """Begin the next lower layer."""
        self._layers.append(_Layer())

    def restart_layer(self) -> None:
        """Read the current layer again from its beginning."""
        self._names -= len(self._layers[-1].members)
        self._layers[-1] = _Layer()

    def add(self, member: Member) -> Program | None:
        """The program, if this member ends the search. Raises :class:`ProgramNotFound`."""
        removes = posixpath.basename(member.path).startswith(WHITEOUT)
        if not (removes or member.kind == "link" or (member.kind == "file" and member.executable)):
            return None
        layer = self._layers[-1]
        layer.add(member)
        self._names += 1
        if self._names > MAX_NAMES:
            raise ProgramNotFound(f"the image has more than {MAX_NAMES} programs and links")
        return self.look(last=False) if member.path == self._awaited else None

    def look(self, *, last: bool) -> Program | None:
        """The program, if the layers so far determine it; None if the next one is needed. Raises
        :class:`ProgramNotFound`, with ``last`` also if no layer has the program.

        The first directory of ``PATH`` with a hit counts, even if an unread layer had one in an earlier directory:
        certainty would require reading every layer of every image to its end.
        """
        awaited: list[str] = []
        for path in self._start.paths:
            try:
                return self._follow(path)
            except _Undecided as undecided:
                awaited.append(undecided.path)
            except _Absent:
                continue
        if awaited and not last:
            self._awaited = awaited[0]
            return None
        raise ProgramNotFound(f"{self._start.command} is in none of its layers")

    def _follow(self, path: str) -> Program:
        shown, script = path, False
        for _ in range(MAX_STEPS + 1):
            found = self._find(path)
            if isinstance(found, str):
                path = found
                continue
            if found.kind == "link":
                path = clean_path(posixpath.join("/", posixpath.dirname(path), found.target))
                continue
            if not found.head.startswith(b"#!"):
                return Program(f"/{path}", found.head, script)
            interpreter = _interpreter(found.head)
            if script or interpreter is None:
                raise ProgramNotFound(f"/{path} is a script without a usable #! line")
            script, path = True, interpreter
        raise ProgramNotFound(f"/{shown} is behind more than {MAX_STEPS} links")

    def _find(self, path: str) -> "Member | str":
        """The member, or the path it resolves to because a parent directory is a link."""
        for layer in self._layers:
            member = layer.members.get(path)
            if member is not None:
                return member
            above = ""
            for name in path.split("/")[:-1]:
                above = f"{above}/{name}" if above else name
                on_the_way = layer.members.get(above)
                if on_the_way is not None and on_the_way.kind == "link":
                    rest = path[len(above) + 1 :]
                    return clean_path(posixpath.join("/", posixpath.dirname(above), on_the_way.target, rest))
            if layer.hides(path):
                raise _Absent
        raise _Undecided(path)


class ProgramSearches:
    """Several searches in the same layers. ``found`` has a program, or why there is none, for each that has ended."""

    def __init__(self, starts: Sequence[Entrypoint]) -> None:
        self.found: dict[Entrypoint, Program | ProgramNotFound] = {}
        self._searches = {start: ProgramSearch(start) for start in starts}

    def begin_layer(self) -> None:
        for _, search in self._open():
            search.begin_layer()

    def restart_layer(self) -> None:
        for _, search in self._open():
            search.restart_layer()

    def add(self, member: Member) -> bool:
        """Whether all have ended."""
        return self._step(lambda search: search.add(member))

    def look(self, *, last: bool) -> bool:
        """The same after a layer, with ``last`` after the last one."""
        return self._step(lambda search: search.look(last=last))

    def give_up(self, reason: ProgramNotFound) -> None:
        """End those that have not ended."""
        for start, _ in self._open():
            self.found[start] = reason

    def _step(self, step: Callable[[ProgramSearch], Program | None]) -> bool:
        for start, search in self._open():
            try:
                program = step(search)
            except ProgramNotFound as reason:
                self.found[start] = reason
            else:
                if program is not None:
                    self.found[start] = program
        return len(self.found) == len(self._searches)

    def _open(self) -> list[tuple[Entrypoint, ProgramSearch]]:
        return [(start, search) for start, search in self._searches.items() if start not in self.found]


class _Undecided(Exception):  # noqa: N818
    """Depends on a lower layer."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _Absent(Exception):  # noqa: N818
    """An upper layer removed the path."""


class _Layer:
    """Links, programs and whiteouts of one layer."""

    __slots__ = ("_opaque", "_removed", "members")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._removed: set[str] = set()
        self._opaque: set[str] = set()

    def add(self, member: Member) -> None:
        folder, _, name = member.path.rpartition("/")
        if name == OPAQUE:
            self._opaque.add(folder)
        elif name.startswith(WHITEOUT):
            self._removed.add(f"{folder}/{name[len(WHITEOUT) :]}".lstrip("/"))
        else:
            self.members[member.path] = member

    def hides(self, path: str) -> bool:
        """Whether lower layers are hidden for this path (image specification, whiteouts)."""
        if not (self._removed or self._opaque):
            return False
        while True:
            if path in self._removed:
                return True
            path = path.rpartition("/")[0]
            if path in self._opaque:
                return True
            if not path:
                return False


def _interpreter(head: bytes) -> str | None:
    line = head[2:].partition(b"\n")[0].split()
    if not line or not line[0].startswith(b"/"):
        return None
    return clean_path(line[0].decode("utf-8", "surrogateescape"))


_Words = Annotated[list[str], msgspec.Meta(max_length=10_000)]


class _Settings(msgspec.Struct):
    entrypoint: _Words | None = msgspec.field(name="Entrypoint", default=None)
    command: _Words | None = msgspec.field(name="Cmd", default=None)
    environment: _Words | None = msgspec.field(name="Env", default=None)
    folder: str | None = msgspec.field(name="WorkingDir", default=None)


class _Config(msgspec.Struct):
    config: _Settings | None = None
