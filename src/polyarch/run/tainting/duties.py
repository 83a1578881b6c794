"""One duty of a role that several modules put together: what runs in each replica, and what only the leader does."""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.kube.controller import Controller
from polyarch.kube.manager import Task


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by name; what is ``led`` is the leader's, and its controllers are fenced by the Lease (KR-030)."""

    controllers: tuple[Controller[Any], ...] = ()
    background: Mapping[str, Task] = {}
    led_controllers: tuple[Controller[Any], ...] = ()
    led: Mapping[str, Task] = {}
