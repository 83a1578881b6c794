"""Registries for commands: served from a loop of their own, because a command runs its own."""

import asyncio
import os
import threading

import image_parts
import pytest

from polyarch.cli import main


@pytest.fixture(scope="session")
def parts():
    """What the tests of ``polyarch.oci`` make images and registries with."""
    return image_parts


@pytest.fixture
def server_loop():
    """A loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def serve(server_loop):
    """``serve(registry)``: the registry, which answers until the test ends."""
    started = []

    def start(registry):
        asyncio.run_coroutine_threadsafe(registry.__aenter__(), server_loop).result(30)
        started.append(registry)
        return registry

    yield start
    for registry in started:
        asyncio.run_coroutine_threadsafe(registry.__aexit__(), server_loop).result(30)


@pytest.fixture
def start_writable(parts, serve):
    """``start_writable(auth=…)``: a registry that can be pushed to."""
    return lambda **settings: serve(parts.WritableRegistry(**settings))


@pytest.fixture
def start_registry(parts, serve):
    """``start_registry(auth=…)``: a registry that is read."""
    return lambda **settings: serve(parts.ScriptedRegistry(**settings))


@pytest.fixture
def inspected(capsys):
    """``inspected("nginx", "-o", "json")`` runs ``polyarch inspect``: exit code, stdout, stderr."""

    def run(*arguments):
        code = main(["inspect", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def clean_home(tmp_path, monkeypatch):
    """A home of its own, and nothing from the developer's environment."""
    for name in [*os.environ]:
        if (
            name.lower().endswith("_proxy")
            or name.startswith(("DOCKER_", "REGISTRY_", "XDG_"))
            or name == "SSL_CERT_FILE"
        ):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home
