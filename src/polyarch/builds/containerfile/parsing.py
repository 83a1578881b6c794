"""A Containerfile as stages of instructions, and everything that is wrong with it (BD-057).

Nothing is raised: faults are listed, so that one message can say them all. Own kinds need a FROM; the user's text of a
machine OS goes on in a stage that was rendered before it (BD-268, BD-269).
"""

import msgspec

from polyarch.builds.containerfile import instructions, statements, words
from polyarch.builds.containerfile import text as texts
from polyarch.builds.containerfile.instructions import Instruction
from polyarch.builds.containerfile.text import Fault


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """From one FROM to the next."""

    line: int
    image: str
    """As written; empty for a stage that the text goes on in."""
    name: str = ""
    """Lower-case; empty without AS."""
    platform: str = ""
    """``--platform``, as written."""
    instructions: tuple[Instruction, ...] = ()


class Containerfile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed text."""

    text_name: str
    escape: str
    header: tuple[Instruction, ...]
    """The ARGs before the first FROM."""
    stages: tuple[Stage, ...]
    inside: tuple[str, ...] = ()
    """Stages that come before the text; it goes on in the last of them."""
    faults: tuple[Fault, ...] = ()


def parse(text: str, *, name: str = "common", inside: tuple[str, ...] = ()) -> Containerfile:
    """Parse a normalised text. ``inside``: names of the stages that were rendered before it; then it needs no FROM."""
    read = statements.read(text, name)
    faults = list(read.faults)
    header: list[Instruction] = []
    stages: list[Stage] = []
    body: list[Instruction] = []
    current = Stage(line=1, image="") if inside else None
    misplaced = False
    for statement in read.statements:
        instruction = instructions.of(statement, read.escape)
        found = instructions.fault(instruction, read.escape, name) if len(faults) < texts.MAX_FAULTS else None
        if found is not None:
            faults.append(found)
        if instruction.name == "FROM":
            if current is not None:
                stages.append(msgspec.structs.replace(current, instructions=tuple(body)))
            current, body = _stage(instruction, read.escape), []
        elif current is not None:
            body.append(instruction)
        elif instruction.name == "ARG":
            header.append(instruction)
        elif not found and not misplaced:
            misplaced = True
            problem = f"{instruction.name} comes before the first FROM"
            expected = "FROM, or ARG before it"
            faults.append(
                Fault(text_name=name, line=instruction.line, problem=problem, expected=expected, rule=texts.NO_FROM)
            )
    if current is not None:
        stages.append(msgspec.structs.replace(current, instructions=tuple(body)))
    elif not misplaced:
        faults.append(
            Fault(text_name=name, line=1, problem="there is no FROM", expected="FROM IMAGE", rule=texts.NO_FROM)
        )
    return Containerfile(
        text_name=name,
        escape=read.escape,
        header=tuple(header),
        stages=tuple(stages),
        inside=inside,
        faults=tuple(sorted(faults, key=lambda each: each.line)[: texts.MAX_FAULTS]),
    )


def _stage(instruction: Instruction, escape: str) -> Stage:
    found = words.split(instruction.arguments, escape)
    return Stage(
        line=instruction.line,
        image=found[0] if found else "",
        name=found[2].lower() if len(found) == 3 else "",
        platform=dict(instruction.flags).get("platform", ""),
    )
