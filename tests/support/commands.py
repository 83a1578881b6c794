"""Shared by the tests of ``polyarch lint`` and ``polyarch fix``: a command line, run as a user runs it."""

import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from polyarch.cli import main

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: kubernetes.io/arch
                operator: In
                values: [amd64, s390x]
              - key: kubernetes.io/os
                operator: In
                values: [linux]
      containers:
      - name: web
        image: quay.io/acme/web:2
"""
FIXED = WEB.replace("[amd64, s390x]", "[amd64]")
PLATFORMS = "quay.io/acme/web:2: [linux/amd64, linux/arm64]\nquay.io/acme/away:1: {error: network}\n"
DIGEST = "sha256:" + "1" * 64


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """Runs a command in a folder with a platforms file; ``offline`` unless told otherwise."""

    def __init__(self, name: str, capsys: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.name = name
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        self.folder = folder
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        (folder / "platforms.yaml").write_text(PLATFORMS)

    def write(self, name: str, text: str = WEB) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def __call__(self, *arguments: str, stdin: str = "", known: bool = True) -> Ran:
        words = [*arguments, "--offline", "--platforms-file", "platforms.yaml"] if known else list(arguments)
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main([*self.name.split(), *words])
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)
