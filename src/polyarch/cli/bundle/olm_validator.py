"""``polyarch-olm-validator DIR``: an external validator for ``operator-sdk bundle validate`` (MF-079).

operator-sdk runs it with the directory of the bundle and reads one object from stdout. So whatever is found ends with
0, and everything that is meant for people goes to stderr; other exit codes say that the program could not run.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from polyarch.cli.bundle.judging import judge_compat, judge_native
from polyarch.cli.errors import CommandError, UsageError
from polyarch.cli.input.platforms_file import load_platforms_file
from polyarch.cli.options.manifests import ImageOptions
from polyarch.manifests import operator_sdk
from polyarch.manifests.bundle import BundleNotValid

USAGE = "usage: polyarch-olm-validator DIR"
HELP = f"""{USAGE}

Judges the operator bundle in DIR for operator-sdk, which runs it:
operator-sdk bundle validate DIR --alpha-select-external "$(command -v polyarch-olm-validator)"

Environment:
  POLYARCH_OLM_MODE        native (default) or compat
  POLYARCH_PLATFORMS_FILE  a file of answers, as --platforms-file of polyarch bundle validate
  POLYARCH_OFFLINE         true: ask no registry
"""
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Judge one bundle and print the result; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    try:
        sys.stdout.write(_result(given, environment))
    except CommandError as error:
        sys.stderr.write(f"polyarch-olm-validator: {error}\n")
        return error.exit_code
    return 0


def _result(given: Sequence[str], environment: Mapping[str, str]) -> str:
    if len(given) != 1:
        raise UsageError(USAGE)
    directory = given[0]
    mode = environment.get("POLYARCH_OLM_MODE") or "native"
    platforms_file = environment.get("POLYARCH_PLATFORMS_FILE")
    file = load_platforms_file(platforms_file) if platforms_file else None
    images = ImageOptions(offline=_truth("POLYARCH_OFFLINE", environment))
    if mode == "compat":
        outputs, name = judge_compat(directory, images, file=file)
        return operator_sdk.result(name, operator_sdk.compat_entries(outputs, name))
    if mode != "native":
        raise UsageError(f"POLYARCH_OLM_MODE is {mode!r}; expected native or compat")
    try:
        findings, bundle = judge_native(directory, images, file=file)
    except BundleNotValid as problem:
        return operator_sdk.result(directory, [operator_sdk.invalid(str(problem), directory)])
    return operator_sdk.result(bundle.name, operator_sdk.native_entries(findings, bundle.name))


def _truth(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in _TRUE | _FALSE:
        raise UsageError(f"{name} is {environment[name]!r}; expected true or false")
    return text in _TRUE


if __name__ == "__main__":
    sys.exit(main())
