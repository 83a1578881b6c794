"""``python -m tools.image NAME``: polyarch's container image of the wheel in dist/, by buildah or docker.

The same commit and the same base make the same image, to the byte: everything carries the time ``SOURCE_DATE_EPOCH``.
The base is pinned in the Containerfile; ``--base`` names another. A pip.conf that ``PIP_CONFIG_FILE`` names (a mirror,
an authority) is there during the build and not in the image.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polyarch

ROOT: Final = Path(__file__).parents[1]
BUILDERS: Final = ("buildah", "docker")


def command(
    program: str, name: str, context: str, environ: Mapping[str, str], *, base: str = "", platform: str = ""
) -> list[str]:
    """What builds ``name`` from the files in ``context``; ``program`` is a path or name of one of ``BUILDERS``."""
    epoch = environ.get("SOURCE_DATE_EPOCH", "0")
    arguments = {
        "VERSION": polyarch.__version__,
        "REVISION": environ.get("REVISION", ""),
        "CREATED": datetime.fromtimestamp(int(epoch), UTC).isoformat().replace("+00:00", "Z"),
        **({"BASE": base} if base else {}),
    }
    if Path(program).name == "docker":
        arguments["SOURCE_DATE_EPOCH"] = epoch
        # Provenance and signatures are made where the image is published, and refer to its digest.
        options = [f"--output=type=docker,name={name},rewrite-timestamp=true", "--provenance=false"]
        start = [program, "buildx", "build", *options]
    else:
        start = [program, "build", "--layers=false", "--identity-label=false", f"--timestamp={epoch}", f"--tag={name}"]
    secret = [f"--secret=id=pip.conf,src={conf}"] if (conf := environ.get("PIP_CONFIG_FILE")) else []
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    chosen = [f"--platform={platform}"] if platform else []
    return [*start, *chosen, *given, *secret, f"--file={context}/Containerfile", context]


def fill(context: Path, wheel: Path) -> None:
    """The builder gets these three files and nothing else of this folder."""
    for path in (ROOT / "deploy" / "image" / "Containerfile", ROOT / "deploy" / "image" / "requirements.lock", wheel):
        shutil.copy(path, context)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build polyarch's container image.")
    parser.add_argument("name", help="such as quay.io/team/polyarch:0.1.0")
    parser.add_argument("--base", default="", help="an image with python3, by digest (default: the Containerfile's)")
    parser.add_argument("--platform", default="", help="such as linux/s390x, if not the machine's own (with emulation)")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where `make dist` put the wheel")
    given = parser.parse_args(arguments)
    builder = next((path for each in BUILDERS if (path := shutil.which(each))), None)
    if builder is None:
        print("neither buildah nor docker is on PATH (Debian, Ubuntu: apt install buildah)", file=sys.stderr)
        return 2
    wheels = sorted(given.dist.glob("polyarch-*.whl"))
    if len(wheels) != 1:
        print(f"{given.dist} has {len(wheels)} wheels of polyarch and should have one: make dist", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as context:
        fill(Path(context), wheels[0])
        return subprocess.run(
            command(builder, given.name, context, os.environ, base=given.base, platform=given.platform), check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
