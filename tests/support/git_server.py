"""A Git server on loopback: git's own HTTP backend behind a password, or plain files, as from a web server."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

USER, PASSWORD = "builder", "pass'word $1"


class Served(NamedTuple):
    """A repository, and what was asked for without a password."""

    url: str
    refused: list[str]


@contextmanager
def served(folder: Path, name: str, *, plain: bool = False) -> Iterator[Served]:
    """``folder/name``, a bare repository. ``plain``: as files, to anybody; else with a password."""
    refused: list[str] = []
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _answer(self, body: bytes) -> None:
            if plain:
                self._file()
            elif self.headers.get("Authorization") != expected:
                refused.append(self.path)
                self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            else:
                self._backend(body)

        def _file(self) -> None:
            path = folder / self.path.partition("?")[0].lstrip("/")
            found = path.is_file()
            self._send(200 if found else 404, {}, path.read_bytes() if found else b"")

        def _backend(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "REMOTE_USER": USER,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, timeout=60, check=True
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self._send(int(fields.pop("Status", "200").split()[0]), fields, content)

        def _send(self, status: int, fields: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for field, value in fields.items():
                self.send_header(field, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{server.server_port}/{name}", refused)
        finally:
            server.shutdown()
            thread.join()
