"""The placement controller keeps a report for a moment: what of the demo's pods could run on arm64, and what is in the
way."""

import time
from typing import Final

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.reports.summary import Summary
from polyarch.reports.wording import percent
from polyarch.sandbox.document import DemoReport
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.tasks import until

TARGET: Final = "arm64"
SECONDS: Final = 120.0
WANTED: Final = {"spec": {"report": {"enabled": True}}}


async def report(client: Client) -> DemoReport:
    """Switch the report on, read it, and switch it off again. polyarch must be installed."""
    metadata = {"name": names.SINGLETON}
    policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": metadata, **WANTED}
    begun = time.monotonic()
    try:
        await client.create(POLICIES, policy)
    except AlreadyExists:  # somebody's own, of this sandbox
        await client.patch(POLICIES, names.SINGLETON, MergePatch(WANTED))
        is_ours = False
    else:
        is_ours = True
    if not await until(lambda: _is_there(client), seconds=SECONDS):
        raise ProcessFailed(f"no report was made within {SECONDS:.0f} s; see the logs of the placement controller")
    found = await _read(client)
    seconds = round(time.monotonic() - begun, 1)
    if is_ours:
        await client.delete(POLICIES, names.SINGLETON)
    return described(found, seconds)


def described(summary: Summary | None, seconds: float) -> DemoReport:
    """What is told of it."""
    sums = {each.target: each for each in summary.sums} if summary is not None else {}
    blockers = [each.image for each in summary.blockers if each.target == TARGET] if summary is not None else []
    share = sums[TARGET].ready_share if TARGET in sums else None
    return DemoReport(target=TARGET, could_run=percent(share), in_the_way=blockers[:1], seconds=seconds)


async def _is_there(client: Client) -> bool:
    return await _read(client) is not None


async def _read(client: Client) -> Summary | None:
    try:
        found = await client.get(CONFIGMAPS, names.REPORT_CONFIGMAP, namespace=DEFAULT_NAMESPACE)
    except NotFound:
        return None
    text = (found.get("data") or {}).get(names.REPORT_KEY)
    return msgspec.json.decode(text, type=Summary) if text else None
