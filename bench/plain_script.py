"""What a team writes where there is no builder: one Job for each architecture at once, a wait, and one index.

The Jobs are the builder's own under other names and without its labels, so what runs in their pods is the same. The
index is joined by ``polyarch index create``. Like the script of a pipeline it does not know what was built before.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.kube.resources import CONFIGMAPS, JOBS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.pods.programs import PROGRAM
from polyarch.sandbox.tasks import until

MOST_SECONDS: Final = 600.0
Document = dict[str, Any]


class Template(NamedTuple):
    """The Job of one architecture with its inputs, as the builder made them."""

    architecture: str
    job: Document
    inputs: Document


async def templates(client: Client, namespace: str) -> list[Template]:
    """Of the Jobs that are in a namespace now."""
    found = []
    for job in (await client.list(JOBS, namespace=namespace)).items:
        inputs = await client.get(CONFIGMAPS, f"{job['metadata']['name']}-in", namespace=namespace)
        found.append(Template(job["metadata"]["labels"][names.ARCHITECTURE_LABEL], job, inputs))
    return found


async def run(
    client: Client, sandbox: Sandbox, namespace: str, repository: str, made_from: Sequence[Template], *, number: int
) -> float:
    """One run of the script for every architecture; seconds until the tag of its index can be read."""
    begun = time.monotonic()
    jobs = [
        await _start(client, namespace, repository, each, name=f"script-{number}-{each.architecture}")
        for each in made_from
    ]
    for job in jobs:

        async def complete(job: str = job) -> bool:
            return _is_complete(await client.get(JOBS, job, namespace=namespace))

        if not await until(complete, seconds=MOST_SECONDS):
            raise RuntimeError(f"Job {job} does not end")
    children = [f"{repository}:{job}" for job in jobs]
    host = repository.partition("/")[0]
    words = ["index", "create", f"{repository}:script-{number}", *children, f"--insecure={host}"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"polyarch {' '.join(words)}: {said.decode()}")
    return time.monotonic() - begun


async def _start(client: Client, namespace: str, repository: str, template: Template, *, name: str) -> str:
    """The Job and its inputs under another name, for another repository; the name."""
    known = template.job["metadata"]
    replaced = {
        f"{known['name']}-in": f"{name}-in",
        known["annotations"][names.REPOSITORY_ANNOTATION]: repository,
        known["name"]: name,
    }
    inputs = {key: template.inputs[key] for key in ("data", "binaryData") if key in template.inputs}
    await client.create(
        CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-in"}, **inputs},
        namespace=namespace,
    )  # fmt: skip
    spec = json.loads(_replaced(json.dumps(template.job["spec"]), replaced))
    del spec["selector"], spec["template"]["metadata"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    await client.create(JOBS, job, namespace=namespace)
    return name


def _replaced(text: str, replaced: Mapping[str, str]) -> str:
    for known, wanted in replaced.items():
        text = text.replace(known, wanted)
    return text


def _is_complete(job: Document) -> bool:
    """Raises if it failed: the script ends there."""
    conditions = {each["type"]: each for each in (job.get("status") or {}).get("conditions") or ()}
    if "Failed" in conditions:
        raise RuntimeError(f"Job {job['metadata']['name']}: {conditions['Failed'].get('message')}")
    return "Complete" in conditions
