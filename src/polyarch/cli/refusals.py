"""Sentences for command lines that the parser refuses.

cyclopts names a missing argument by the parameter of a Python function, and lists what is left over as a list of
tokens. Who typed the line knows neither: they read the words of ``--help``, and which command to ask for more.
"""

from cyclopts import CoercionError, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from polyarch.cli.options.declared import of_argument


def sentence(error: CycloptsError) -> str:
    """What is wrong, in the words of the command's help page."""
    command = " ".join(error.command_chain or ())
    name = f"{command}: " if command else ""
    help_line = f"polyarch {command} --help" if command else "polyarch --help"
    match error:
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            return f"{name}{first!r} is one word too many; {help_line} shows what may stand there"
        case MissingArgumentError(argument=argument) if argument is not None:
            wanted = of_argument(argument)
            if wanted.is_argument:
                return f"{name}give {wanted.placeholder}; {help_line} shows what it is"
            option = wanted.names[-1]
            return f"{name}{option} takes a value; give {option} {wanted.placeholder}"
        case UnknownOptionError():
            *_, known = f"{error}".partition(" Did you mean ")
            instead = f"did you mean {known}" if known else f"{help_line} lists them"
            return f"{name}there is no option {error.token.keyword or error.token.value}; {instead}"
        case CoercionError(token=token, target_type=target) if token is not None and target in (int, float):
            return f"{name}{token.keyword or 'argument'} {token.value}: expected a number"
    return str(error)
