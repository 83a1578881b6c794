"""``polyarch run all``: every role of the cluster in one process, for small clusters and for trying things."""

from polyarch.run.placement import open_parts
from polyarch.run.placement_controller import controller_role
from polyarch.run.placement_webhook import webhook_role
from polyarch.run.process import open_process
from polyarch.run.settings import RunSettings


async def run(settings: RunSettings) -> None:
    """Until SIGTERM."""
    async with open_process("all", settings) as process, open_parts(process) as parts:
        webhook = webhook_role(parts)
        controller = controller_role(parts, lambda: process.is_leading)
        try:
            await process.run(
                caches=[parts.facts],
                admission=webhook.admission,
                election=controller.election,
                controllers=[controller.controller],
                recorder=controller.recorder,
                background=controller.background,
            )
        finally:
            await webhook.close()
