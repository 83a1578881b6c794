"""uvloop, in which no file descriptor of a connection is closed twice.

Where the other side resets a connection while its handshake is given up, uvloop 0.23 closes the descriptor, and the
socket that it was made from does so once more when it is forgotten. By then the number may mean another connection,
and libuv ends the process (``uv__epoll_ctl_flush``). Whoever runs a registry can choose the moment. So the socket lets
go of the descriptor as soon as uvloop has it, and a handshake that nobody waits for goes on until it has an end.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import uvloop


class EventLoop(uvloop.Loop):
    """As uvloop's, but for connections that the process opens."""

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *address: Any, **options: Any
    ) -> tuple[Any, Any]:
        """As asyncio's. The socket that is given is detached; if this is cancelled, its connection is shut down."""
        given = options.get("sock")
        own = given.dup() if given is not None else None
        connecting = self.create_task(super().create_connection(protocol_factory, *address, **options))
        if given is not None:
            self.call_soon(given.detach)  # after the task's first step, in which uvloop takes the descriptor
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_abandon)
            if own is not None:
                with contextlib.suppress(OSError):
                    own.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            if own is not None:
                own.close()


def _abandon(connecting: "asyncio.Task[tuple[Any, Any]]") -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[0].abort()
