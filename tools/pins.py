"""Prints the checksums for ``sandbox/binaries/pins.py`` as the projects publish them: ``python -m tools.pins``.

For maintainers, after a change of the sandbox's versions, on a machine with a way out. Compare with a second source
before you commit: what stands in that file is what everybody's download is checked against.
"""

import sys
import urllib.error
import urllib.request

from polyarch.sandbox import versions
from polyarch.sandbox.binaries import release
from polyarch.sandbox.versions import NODE_PROGRAMS, PROGRAMS, Module, Program

ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x", "riscv64")
SECONDS = 20.0
LIST_BYTES = 64 * 1024


def list_url(program: Program, url: str) -> str:
    """Where the checksum of a release is published."""
    return f"{url.rpartition('/')[0]}/SHA256SUMS" if program.module is Module.ETCD else f"{url}.sha256"


def published(text: str, file_name: str) -> str | None:
    """The SHA-256 in a checksum file: either the only word in it, or that on the line of ``file_name``."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for words in lines:
        is_ours = len(words) == 1 == len(lines) or (len(words) == 2 and words[1].lstrip("*") == file_name)
        if is_ours and len(words[0]) == 64 and not set(words[0].lower()) - set("0123456789abcdef"):
            return words[0].lower()
    return None


def table() -> list[str]:
    """The lines of ``pins.py``; a release that is not there is left out and told of."""
    lines = [f"VERSIONS: Final = {(versions.KUBERNETES, versions.ETCD, versions.REGISTRY)!r}", "SHA256 = {"]
    for program in (*PROGRAMS, *NODE_PROGRAMS):
        lines.append(f'    "{program.name}": {{')
        for architecture in ARCHITECTURES:
            url = release(program, architecture).url
            try:
                with urllib.request.urlopen(list_url(program, url), timeout=SECONDS) as answer:
                    checksum = published(answer.read(LIST_BYTES).decode("ascii", "replace"), url.rpartition("/")[2])
            except urllib.error.URLError as error:
                print(f"{url}: {error}", file=sys.stderr)
                continue
            if checksum is not None:
                lines.append(f'        "{architecture}": "{checksum}",')
        lines.append("    },")
    return [*lines, "}"]


if __name__ == "__main__":
    print("\n".join(table()))
