"""The commands of pages that need neither a cluster nor a registry do what the page says."""

import os
import sys
from pathlib import Path

import pytest
from guide_pages import follow

pytestmark = pytest.mark.req("IN-041")

OFFLINE = ("bundles.md",)


@pytest.mark.parametrize("page", OFFLINE)
async def test_the_commands_of_the_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POLYARCH_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "NO_COLOR": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "",
    }
    assert await follow(page, tmp_path, environment)
