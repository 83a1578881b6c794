"""Asking for the images of a report: what is known when somebody interrupts it."""

import asyncio
from pathlib import Path

import pytest
from report_world import BOTH, cluster, workload

from polyarch.cli.options.images import ImageOptions, RegistryOptions
from polyarch.cli.output.messages import Messages
from polyarch.cli.report.inputs import AlternativeOptions, ask

pytestmark = pytest.mark.req("RP-003")


@pytest.mark.req("RP-051")
def test_an_interrupted_question_leaves_what_is_known(tmp_path: Path) -> None:
    platforms = tmp_path / "platforms.yaml"
    platforms.write_text(f"{BOTH}: [linux/amd64]\n")

    async def interrupted() -> tuple[bool, list[str]]:
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            facts = cluster(workload("known", BOTH), workload("never", f"{host}/acme/silent:1"))
            options = ImageOptions(
                platforms_file=str(platforms), no_cache=True, access=RegistryOptions(insecure=[host])
            )
            work = asyncio.create_task(
                ask(facts, options, Messages(quiet=True), client=None, beyond=AlternativeOptions())
            )
            await asked.wait()
            work.cancel()
            found = await work
        return found.complete, [each.image for each in found.answers.readings]

    assert asyncio.run(interrupted()) == (False, [BOTH])
