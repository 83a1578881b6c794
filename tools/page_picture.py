"""Pictures of a page in both colour schemes, taken with Chromium: ``docs/pictures/*.png``.

``python -m tools.page_picture PAGE.html OUT [WIDTH] [HEIGHT]`` writes ``OUT-light.png`` and ``OUT-dark.png``.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from tools.headless_browser import SCHEMES, page_of, running
from tools.peers.catalogue import Absent, found


async def pictures(address: str, page: Path, width: int, height: int) -> list[bytes]:
    """One for each colour scheme."""
    async with page_of(address) as tab:
        await tab.size(width, height)
        taken = []
        for scheme in SCHEMES:
            await tab.open(page, scheme=scheme)
            taken.append(await tab.picture())
        return taken


def main(page: str, out: str, width: str = "1120", height: str = "1250") -> int:
    chromium = found("chromium")
    if isinstance(chromium, Absent):
        print(f"chromium: {chromium.why}", file=sys.stderr)
        return 3
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        running(chromium.program, Path(profile)) as address,
    ):
        taken = asyncio.run(pictures(address, Path(page).resolve(), int(width), int(height)))
    for scheme, picture in zip(SCHEMES, taken, strict=True):
        Path(f"{out}-{scheme}.png").write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
