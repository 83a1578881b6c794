"""The write of ``polyarch numa export --once --publish``. It imports HTTP, which the rest does without."""

import asyncio
from typing import Any

from polyarch.cli.cluster import Access, on_cluster
from polyarch.numa.exporter.publisher import publish_once
from polyarch.numa.exporter.settings import ExporterSettings


def publish(document: dict[str, Any], settings: ExporterSettings, kubeconfig: str | None, context: str | None) -> str:
    """Writes the object if the cluster has another one; says what was done. Raises CommandError."""
    access = Access(kubeconfig or settings.kubeconfig or None, context)
    sent = asyncio.run(on_cluster("numa export", access, lambda client: publish_once(client, document, settings)))
    return f"NodeResourceTopology {settings.hostname}: {DONE[sent.operation or '']}"


DONE = {"create": "created", "patch": "changed", "update": "changed", "": "was published already"}
