"""Connections that are reset while their handshake is given up, as a hostile registry can have it."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

uvloop = pytest.importorskip("uvloop")
from polyarch.run.event_loop import EventLoop  # noqa: E402 - where uvloop is installed

pytestmark = pytest.mark.req("KR-034")
HANDSHAKES = 1500
SERVER = """
import random, socket, struct, threading, time
server = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(server.getsockname()[1], flush=True)

def reset(connection):
    chance = random.random()
    try:
        if chance < 0.3:
            connection.recv(1)
        elif chance < 0.6:
            time.sleep(random.random() * 0.02)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    except OSError:
        pass

while True:
    threading.Thread(target=reset, args=(server.accept()[0],), daemon=True).start()
"""
CLIENT = f"""
import asyncio, random, sys, time
import aiohttp, uvloop
from polyarch.run.event_loop import EventLoop

async def main():
    async def busy():
        while True:
            await asyncio.sleep(random.random() * 0.01)
            time.sleep(random.random() * 0.03)

    async def ask():
        try:
            async with asyncio.timeout(random.random() * 0.15):
                await session.get(f"https://127.0.0.1:{{sys.argv[1]}}/v2/")
        except (aiohttp.ClientError, TimeoutError):
            pass

    others = asyncio.create_task(busy())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range({HANDSHAKES} // 25):
            await asyncio.gather(*(ask() for _ in range(25)))
    others.cancel()

uvloop.run(main(), loop_factory=EventLoop)
"""


def test_a_process_outlives_resets_of_handshakes_that_it_gives_up() -> None:
    """With uvloop's own loop most runs end by SIGABRT after a few hundred."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            asked = [sys.executable, "-c", CLIENT, server.stdout.readline().strip()]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
        finally:
            server.kill()
    assert (done.returncode, done.stderr) == (0, "")


@asynccontextmanager
async def mute() -> AsyncIterator[tuple[socket.socket, asyncio.Event]]:
    """A socket that is connected to somebody who says nothing, and whether the connection has ended there."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, server.sockets[0].getsockname())
    try:
        yield sock, ended
    finally:
        server.close()


def run(main: object) -> None:
    uvloop.run(main, loop_factory=EventLoop)


def test_a_handshake_that_is_given_up_ends_its_connection() -> None:
    async def main() -> None:
        async with mute() as (sock, ended):
            loop = asyncio.get_running_loop()
            context = ssl.create_default_context()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await loop.create_connection(asyncio.Protocol, sock=sock, ssl=context, server_hostname="x")
            async with asyncio.timeout(5):
                await ended.wait()

    run(main())


def test_a_socket_lets_go_of_its_descriptor_and_the_connection_works() -> None:
    async def main() -> None:
        async with mute() as (sock, ended):
            number = sock.fileno()
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=sock)
            assert sock.fileno() == -1
            os.fstat(number)
            transport.close()
            async with asyncio.timeout(5):
                await ended.wait()

    run(main())


def test_a_connection_that_is_reset_raises_what_it_did() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            sock = socket.create_connection(server.getsockname())
            sock.setblocking(False)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            loop, context = asyncio.get_running_loop(), ssl.create_default_context()
            with pytest.raises(OSError, match=r"reset|broken"):
                await loop.create_connection(asyncio.Protocol, sock=sock, ssl=context, server_hostname="x")

    run(main())
