"""``polyarch completion SHELL``: a script that asks ``polyarch __complete`` what can stand where the cursor is.

So the script never gets older than the program, as with kubectl. An answer is a line ``KIND<tab>PREFIX`` and a line
``VALUE<tab>MEANING`` for each candidate. The kinds ``files`` and ``directories`` ask the shell for names of its own;
the prefix is the part of the word that stays. Names that a cluster knows are asked for there."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from cyclopts import App

from polyarch.cli.options.help_page import OptionDeclaration, declared, epilogue
from polyarch.cli.options.values import Placeholder, option, subject

if TYPE_CHECKING:
    from cyclopts.command_spec import CommandSpec


Shell = Annotated[Literal["bash", "zsh", "fish", "kubectl"], Placeholder("SHELL")]

EPILOGUE = epilogue(
    examples=(
        ("Complete commands in this shell", "source <(polyarch completion bash)"),
        (
            "In every shell from now on (bash)",
            "polyarch completion bash > ~/.local/share/bash-completion/completions/polyarch",
        ),
        (
            "In every shell from now on (zsh; the directory must be in fpath)",
            "polyarch completion zsh > ~/.zfunc/_polyarch",
        ),
        ("In every shell from now on (fish)", "polyarch completion fish > ~/.config/fish/completions/polyarch.fish"),
        (
            "For kubectl polyarch, where krew has installed it (then chmod +x; kubectl's completion asks this program)",
            "kubectl polyarch completion kubectl > ~/.krew/bin/kubectl_complete-polyarch",
        ),
    ),
    exits=((0, "the script was printed"), (2, "the command line is wrong")),
)

BASH = r"""# bash completion for polyarch
_polyarch() {
    local IFS=$'\n' i word last=-1 words=() lines=() kind prefix line
    # bash cuts words at = and :, here they belong to them
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((last >= 0)) && [[ $word == [=:]* || ${words[last]} == *[=:] ]]; then
            words[last]+=$word
        else
            words[++last]=$word
        fi
    done
    while read -r line; do lines+=("$line"); done < <("$1" __complete "${words[@]}" 2>/dev/null)
    kind=${lines[0]%%$'\t'*}
    prefix=${lines[0]#*$'\t'}
    word=${words[last]#"$prefix"}
    case $kind in
        files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
        directories) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$word")) ;;
        *)
            [[ $prefix == *[=:]* ]] && prefix=${prefix##*[=:]}
            COMPREPLY=()
            for line in "${lines[@]:1}"; do
                COMPREPLY+=("$prefix${line%%$'\t'*}")
            done ;;
    esac
}
complete -F _polyarch polyarch
"""

ZSH = r"""#compdef polyarch
_polyarch() {
    local -a lines candidates
    local kind prefix line
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    kind=${lines[1]%%$'\t'*}
    prefix=${lines[1]#*$'\t'}
    compset -p ${#prefix}
    case $kind in
        files) _files ;;
        directories) _files -/ ;;
        *)
            for line in "${(@)lines[2,-1]}"; do
                candidates+=("${${line%%$'\t'*}//:/\\:}${${line#*$'\t'}:+:${line#*$'\t'}}")
            done
            _describe -t values value candidates -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' ;;
    esac
}
if [[ ${funcstack[1]} == _polyarch ]]; then
    _polyarch "$@"
else
    (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit; }
    compdef _polyarch polyarch
fi
"""

FISH = r"""# fish completion for polyarch
function __polyarch_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    set -l head (string split \t -- $lines[1])
    set -l rest (string sub -s (math (string length -- "$head[2]") + 1) -- "$current")
    switch $head[1]
        case files
            for path in (__fish_complete_path "$rest")
                echo "$head[2]$path"
            end
        case directories
            for path in (__fish_complete_directories "$rest")
                echo "$head[2]$path"
            end
        case '*'
            for line in $lines[2..-1]
                echo "$head[2]$line"
            end
    end
end
complete -c polyarch -f -a '(__polyarch_complete)'
"""

KUBECTL: Final = """\
#!/bin/sh
# kubectl_complete-polyarch: what kubectl's completion asks about `kubectl polyarch`, as soon as it is on PATH.
exec kubectl-polyarch __complete-kubectl "$@"
"""
"""pipx and uv install a program of that name. krew makes a link to one program of a plugin, and to no other."""
NOTHING_ELSE: Final = 4
KUBECTL_DIRECTIVES: Final = {"words": NOTHING_ELSE, "files": 0, "directories": 16}
"""What cobra calls ShellCompDirectives: no files; files; directories only."""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def print_script(
    shell: Annotated[
        Shell, option("bash, zsh or fish; kubectl for the program that its completion asks", group=subject("Shell"))
    ],
    /,
) -> int:
    """Print a completion script; returns the exit code."""
    sys.stdout.write(KUBECTL if shell == "kubectl" else SCRIPTS[shell])
    return 0


completion = App(name="completion", help_epilogue=EPILOGUE)
completion.default(print_script)


class Completions(NamedTuple):
    """What can stand at the cursor."""

    kind: Literal["words", "files", "directories"] = "words"
    prefix: str = ""
    values: Sequence[tuple[str, str]] = ()
    """Each with its meaning."""


def print_completions(root: App, words: Sequence[str]) -> int:
    """Answer a script; the last of the words is the one to complete."""
    found = completions(root, words)
    sys.stdout.write(f"{found.kind}\t{found.prefix}\n")
    sys.stdout.writelines(f"{value}\t{meaning}\n" for value, meaning in found.values)
    return 0


def print_to_kubectl(root: App, words: Sequence[str]) -> int:
    """Answer kubectl's own completion of ``kubectl polyarch …``.

    A candidate is a line ``VALUE<tab>MEANING``; the last line tells kubectl who completes what is not listed.
    """
    found = completions(root, words)
    sys.stdout.writelines(f"{found.prefix}{value}\t{meaning}\n" for value, meaning in found.values)
    sys.stdout.write(f":{KUBECTL_DIRECTIVES[found.kind] if not found.prefix else NOTHING_ELSE}\n")
    return 0


def completions(root: App, words: Sequence[str]) -> Completions:
    """What can stand in the place of the last word, which may have begun."""
    *before, current = words or [""]
    command = root
    while before and not before[0].startswith("-") and before[0] in command:
        command = command[before.pop(0)]
    inner = [(name, _item(command, name).help or "") for name in command if not name.startswith("-")]
    if command.default_command is None:
        return _beginning(current, [*inner, *_help(current)])
    options = declared(command)
    named = {name: each for each in options if not each.is_argument for name in each.names}
    given = _given(options, named, before)
    if "--" in before:
        return _argument(options, current, given)
    if before and (each := named.get(before[-1])) is not None and each.placeholder:
        return _value(each, current, given)
    name, equals, value = current.partition("=")
    if equals and name in named:
        found_value = _value(named[name], value, given)
        return found_value._replace(prefix=f"{name}={found_value.prefix}")
    if current.startswith("-"):
        return _beginning(current, [*((name, each.help) for name, each in named.items()), *_help(current)])
    found = _argument(options, current, given)
    return found._replace(values=[*found.values, *_beginning(current, inner).values]) if inner and not before else found


def _given(
    options: Iterable[OptionDeclaration], named: Mapping[str, OptionDeclaration], before: Sequence[str]
) -> dict[str, str]:
    """Values on the command line, by the longest name of their option; the first argument's by its placeholder."""
    found: dict[str, str] = {}
    argument = next((each.placeholder for each in options if each.is_argument), "")
    words = iter(before)
    for word in words:
        name, equals, value = word.partition("=")
        option = named.get(name)
        if option is not None:
            if option.placeholder:
                found[max(option.names, key=len)] = value if equals else next(words, "")
        elif argument and not word.startswith("-"):
            found.setdefault(argument, word)
    return found


def _argument(options: Iterable[OptionDeclaration], current: str, given: Mapping[str, str]) -> Completions:
    argument = next((each for each in options if each.is_argument), None)
    return _value(argument, current, given) if argument is not None else Completions()


def _value(each: OptionDeclaration, current: str, given: Mapping[str, str]) -> Completions:
    if each.source:
        module, _, function = each.source.partition(":")
        return _beginning(current, getattr(importlib.import_module(module), function)(given))
    if each.placeholder.endswith("[=FILE]"):
        form, equals, _ = current.partition("=")
        if equals:
            return Completions("files", f"{form}=")
    if each.choices:
        return _beginning(current, [(choice, "") for choice in each.choices])
    match each.placeholder:
        case "FILE" | "PATH" | "GLOB":
            return Completions("files")
        case "DIR":
            return Completions("directories")
        case "RULE":
            return _beginning(current, _rules())
        case "RULES" | "RULE=LEVEL":
            return _listed(current, _rules())
        case "PLATFORMS":
            return _listed(current, _platforms())
    return Completions()


def _listed(current: str, known: Iterable[tuple[str, str]]) -> Completions:
    """Values by commas: the last of them is to be completed."""
    head, comma, last = current.rpartition(",")
    return _beginning(last, known)._replace(prefix=f"{head}{comma}")


def _beginning(current: str, known: Iterable[tuple[str, str]]) -> Completions:
    folded = current.casefold()
    return Completions(values=[each for each in known if each[0].casefold().startswith(folded)])


def _help(current: str) -> list[tuple[str, str]]:
    return [("--help", "Print help")] if current.startswith("-") else []


def _rules() -> Iterator[tuple[str, str]]:
    from polyarch.manifests.rules.catalogue import RULES

    return ((rule.id, rule.title) for rule in RULES.values())


def _platforms() -> Iterator[tuple[str, str]]:
    from polyarch.platforms import KNOWN_ARCHITECTURES

    return ((f"linux/{name}", "") for name in sorted(KNOWN_ARCHITECTURES))


def _item(command: App, name: str) -> "App | CommandSpec":
    return command._get_item(name)
