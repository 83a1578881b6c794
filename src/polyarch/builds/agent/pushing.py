"""Pushes the image of one architecture from the layout that a build left: ``polyarch run build-push`` (BD-148)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from polyarch.builds.agent.ending import Ending, of_registry
from polyarch.builds.agent.layout import CheckedLayout, Unusable, check_layout
from polyarch.builds.jobs.contract import Pushed
from polyarch.oci.image.contents import Connection
from polyarch.oci.image.layout import Layout
from polyarch.oci.reference import parse_located
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import Assembled, Child
from polyarch.oci.write.gather import Piece
from polyarch.oci.write.push import Push, PushFailed, open_destination


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What to push and where."""

    layout: Path
    architecture: str
    repository: str
    tag: str = ""
    """Empty: by digest only (``archTags: None``)."""


async def push_child(connection: Connection, upload: Upload, *, notice: Callable[[str], None]) -> Ending:
    """Check the layout, push what the registry lacks, then the tag. What a registry refuses is an ending."""
    try:
        checked = await asyncio.to_thread(check_layout, upload.layout, upload.architecture)
    except Unusable as unusable:
        return Ending.failure(unusable.code, str(unusable))
    size = len(checked.manifest)
    child = Child(checked.media_type, checked.digest, size, checked.platform, upload.repository)
    piece = Piece(child, connection.within(Layout(str(upload.layout))), checked.manifest)
    alone = Assembled(checked.manifest, checked.media_type, checked.digest, (child,))
    try:
        writer = await open_destination(connection, parse_located(upload.repository))
        push = Push(connection, writer, alone, {child.digest: piece}, notice=notice)
        await push.go([upload.tag] if upload.tag else [])
    except PushFailed as failed:
        return of_registry(failed.error)
    except Failure as failure:
        return of_registry(failure.error)
    return Ending(0, _pushed(checked))


def _pushed(checked: CheckedLayout) -> Pushed:
    platform = checked.platform
    return Pushed(
        digest=checked.digest,
        size=len(checked.manifest),
        media_type=checked.media_type,
        os=platform.os,
        architecture=platform.architecture,
        variant=platform.variant,
        config=checked.config,
    )
