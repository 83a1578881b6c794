"""``python -m tools.alone PATH [PYTEST OPTION …]``: tests beside each other, then what failed once more, one at a time.

Tests against a cluster wait for real programs. Several workers on a small machine can make one of them late, which says
nothing about polyarch; a defect fails alone as well. What failed only beside others is named at the end, so that it is
looked into: waits that are too short, or two tests that meet in one place.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST = 40
"""More failures than this are no matter of load: they are not tried again."""
SERIAL_OPTIONS = ("-n", "--dist", "--no-loadscope-reorder")
TESTS_FAILED = 1


def failed(cache: Path) -> list[str]:
    """What failed last, by pytest's own record."""
    try:
        found = json.loads((cache / "v/cache/lastfailed").read_text())
    except FileNotFoundError:
        return []
    return sorted(found)


def serial(options: Sequence[str]) -> list[str]:
    """The options without those that concern workers."""
    kept: list[str] = []
    rest = iter(options)
    for option in rest:
        if option in ("-n", "--dist"):
            next(rest, None)
        elif not option.startswith(SERIAL_OPTIONS):
            kept.append(option)
    return kept


def main(arguments: Sequence[str]) -> int:
    """The exit code of the last run of pytest that counts."""
    path, *options = arguments
    with tempfile.TemporaryDirectory(prefix="polyarch-tests-") as folder:
        cache = Path(folder)
        command = (sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}")
        first = subprocess.run([*command, path, *options], check=False).returncode
        again = failed(cache)
        if first != TESTS_FAILED or not 0 < len(again) <= MOST:
            return first
        print(f"== once more, one at a time: {len(again)} that failed beside others", flush=True)
        second = subprocess.run([*command, path, "--lf", "--lfnf=none", *serial(options)], check=False).returncode
        late = sorted(set(again) - set(failed(cache))) if second in (0, TESTS_FAILED) else []
        for name in late:
            print(f"failed beside others, passed alone: {name}", flush=True)
        return second


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
