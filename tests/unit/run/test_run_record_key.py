"""The key that decision annotations are signed with: found, rotated, lost."""

import base64
from pathlib import Path

import pytest
from manual_clock import ManualClock
from structlog.testing import capture_logs

from polyarch.placement.decision import NO_SIGNER, RecordSigner
from polyarch.run.record_key import ACCEPTED_AFTER, FILE, INTERVAL, SPREAD, SigningKeyFile

OLD, NEW = b"o" * 32, b"n" * 32
TEXT = b"a record"


class RecordKeyWorld:
    """A process that follows ``record.key``."""

    def __init__(self, folder: str) -> None:
        self.clock = ManualClock(start=0)
        self.seal: RecordSigner = NO_SIGNER
        self.key = SigningKeyFile(folder, self._take, self.clock)
        self.path = Path(folder) / FILE

    def _take(self, seal: RecordSigner) -> None:
        self.seal = seal

    def write(self, *keys: bytes) -> None:
        self.path.write_bytes(b"".join(base64.b64encode(key) + b"\n" for key in keys))

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.key.look()

    @property
    def signs_with(self) -> str:
        return next(
            (name for name, key in (("old", OLD), ("new", NEW)) if RecordSigner([key]).sign(TEXT) == self.sign()), ""
        )

    def sign(self) -> str:
        return self.seal.sign(TEXT)

    def believes(self, key: bytes) -> bool:
        return self.seal.fits(RecordSigner([key]).sign(TEXT), TEXT)


@pytest.fixture
def world(tmp_path: Path) -> RecordKeyWorld:
    return RecordKeyWorld(str(tmp_path))


@pytest.mark.req("PL-853")
async def test_a_key_that_is_there_is_used_at_once(world: RecordKeyWorld) -> None:
    world.write(OLD)
    await world.after(0)
    assert world.signs_with == "old"


@pytest.mark.req("PL-853")
@pytest.mark.parametrize("keeps", [True, False], ids=["with the one before", "alone"])
async def test_a_new_key_is_believed_at_once_and_signed_with_when_all_have_it(
    world: RecordKeyWorld, keeps: bool
) -> None:
    """A replica that has not heard of it must be able to believe what this one signs."""
    world.write(OLD)
    await world.after(0)
    world.write(NEW, *([OLD] if keeps else []))
    await world.after(INTERVAL)
    assert (world.signs_with, world.believes(NEW), world.believes(OLD)) == ("old", True, True)
    await world.after(SPREAD)
    assert (world.signs_with, world.believes(NEW), world.believes(OLD)) == ("new", True, True)


@pytest.mark.req("PL-853")
async def test_a_process_that_starts_during_a_rotation_waits_as_well(world: RecordKeyWorld) -> None:
    world.write(NEW, OLD)
    await world.after(0)
    assert world.signs_with == "old"
    await world.after(SPREAD)
    assert world.signs_with == "new"


@pytest.mark.req("PL-853")
@pytest.mark.parametrize("content", [None, b"", b"no key\n"], ids=["gone", "empty", "damaged"])
async def test_what_happens_to_the_file_takes_no_key_away(world: RecordKeyWorld, content: bytes | None) -> None:
    """It is said once, and holds nothing of the content."""
    world.write(OLD)
    await world.after(0)
    if content is None:
        world.path.unlink()
    else:
        world.path.write_bytes(content)
    with capture_logs() as logs:
        for _ in range(3):
            await world.after(INTERVAL)
    assert world.signs_with == "old"
    assert [line["event"] for line in logs] == ["cannot read the key of decision annotations, using those in memory"]


@pytest.mark.req("PL-853")
@pytest.mark.parametrize("folder", ["", "nowhere"], ids=["no folder", "no file"])
async def test_without_a_key_that_is_said_once(folder: str) -> None:
    world = RecordKeyWorld(folder)
    with capture_logs() as logs:
        for _ in range(3):
            await world.after(INTERVAL)
    assert not world.seal.has_key
    assert [(line["log_level"], line["problem"]) for line in logs] == [("warning", "there is none")]


@pytest.mark.req("PL-853")
async def test_a_key_that_comes_later_counts_from_then_on(world: RecordKeyWorld) -> None:
    await world.after(0)
    assert not world.seal.has_key
    world.write(OLD)
    await world.after(INTERVAL)
    assert world.signs_with == "old"


@pytest.mark.req("PL-853")
async def test_a_key_of_before_that_is_put_beside_the_one_in_use_is_believed(world: RecordKeyWorld) -> None:
    """The last two keys of the file count, whenever the second one came."""
    world.write(NEW)
    await world.after(0)
    world.write(NEW, OLD)
    await world.after(INTERVAL)
    assert (world.signs_with, world.believes(OLD)) == ("new", True)


@pytest.mark.req("PL-853")
@pytest.mark.parametrize("rotated", [True, False], ids=["replaced", "taken out"])
async def test_a_key_that_was_stolen_is_revoked_by_taking_it_out_of_the_file(
    world: RecordKeyWorld, rotated: bool
) -> None:
    """Until then another replica may sign with it; afterwards whoever stole it can forge nothing."""
    world.write(*([OLD] if rotated else [NEW, OLD]))
    await world.after(0)
    await world.after(SPREAD)
    world.write(NEW)
    await world.after(INTERVAL)
    await world.after(ACCEPTED_AFTER - 1)
    assert (world.signs_with, world.believes(OLD)) == ("new", True)
    await world.after(1)
    assert (world.signs_with, world.believes(NEW), world.believes(OLD)) == ("new", True, False)


@pytest.mark.req("PL-853")
async def test_a_key_that_is_put_back_in_time_is_not_revoked(world: RecordKeyWorld) -> None:
    world.write(NEW, OLD)
    await world.after(0)
    await world.after(SPREAD)
    for _ in range(3):
        world.write(NEW)
        await world.after(INTERVAL)
        await world.after(ACCEPTED_AFTER - 1)
        world.write(NEW, OLD)
        await world.after(INTERVAL)
        assert world.believes(OLD)


@pytest.mark.req("PL-853")
async def test_a_file_that_cannot_be_read_revokes_nothing_however_long(world: RecordKeyWorld) -> None:
    world.write(NEW, OLD)
    await world.after(0)
    await world.after(SPREAD)
    world.path.unlink()
    await world.after(INTERVAL)
    await world.after(ACCEPTED_AFTER)
    assert (world.believes(NEW), world.believes(OLD)) == (True, True)
