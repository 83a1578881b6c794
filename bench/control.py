"""What the warm burst is compared with: no webhook at all, and one in Go that answers every pod with the same patch.

Most of what a burst costs is the API server's own work for a webhook, whoever answers it. So polyarch is measured
beside one that decides nothing. The Go program is built when it is needed; without Go there is no such control.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from polyarch.kube.client import Client
from polyarch.kube.resources import MUTATING_WEBHOOKS
from polyarch.placement import names

SOURCE = Path(__file__).parent / "fixed_patch"
BUILD_SECONDS = 300.0
IN_FORCE = 2.0
"""Seconds until the API server surely goes by another configuration of webhooks."""


@asynccontextmanager
async def without_webhook(client: Client) -> AsyncIterator[None]:
    """No webhook is configured."""
    async with _configured(client, None):
        yield


@asynccontextmanager
async def fixed_patch(client: Client, certificates: Path) -> AsyncIterator[int | None]:
    """The Go program in polyarch's place, and its pid; None, and nothing changed, if there is no Go."""
    go = shutil.which("go")
    if go is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fixed_patch"
        building = await asyncio.create_subprocess_exec(go, "build", "-o", str(program), ".", cwd=SOURCE)
        async with asyncio.timeout(BUILD_SECONDS):
            if await building.wait():
                raise RuntimeError(f"{SOURCE} cannot be built; see above")
        serving = await asyncio.create_subprocess_exec(
            str(program), str(certificates / "tls.crt"), str(certificates / "tls.key"), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert serving.stdout is not None
            port = int(await serving.stdout.readline())
            authority = (certificates / "ca.crt").read_bytes()
            url = f"https://127.0.0.1:{port}{names.POD_WEBHOOK_PATH}"
            async with _configured(client, {"url": url, "caBundle": authority}):
                yield serving.pid
        finally:
            serving.kill()
            await serving.wait()


@asynccontextmanager
async def _configured(client: Client, other: dict[str, Any] | None) -> AsyncIterator[None]:
    """The pod webhook's configuration with another ``clientConfig``, or without the webhook; afterwards as it was.

    No operator may run, which would set it right again.
    """
    name = names.WEBHOOK_CONFIGURATION
    known = await client.get(MUTATING_WEBHOOKS, name)
    kept = {key: value for key, value in known["metadata"].items() if key in ("name", "labels", "annotations")}
    original: dict[str, Any] = {**known, "metadata": kept}
    await client.delete(MUTATING_WEBHOOKS, name)
    if other is not None:
        webhooks = [{**each, "clientConfig": other} for each in known["webhooks"]]
        await client.create(MUTATING_WEBHOOKS, {**original, "webhooks": webhooks})
    await asyncio.sleep(IN_FORCE)
    try:
        yield
    finally:
        if other is not None:
            await client.delete(MUTATING_WEBHOOKS, name)
        await client.create(MUTATING_WEBHOOKS, original)
        await asyncio.sleep(IN_FORCE)
