"""Answers of the podresources API as files of a directory: ``fake:///dir`` (NE-051).

They are in JSON with the names of the proto's fields, as Go programs and ``protojson`` write them; lowerCamel is read
too. For trying on any machine what another one would publish, and for fixtures.
"""

import json
from pathlib import Path
from typing import TypeVar

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from polyarch.numa.decide.facts import Allocatable, ListedPod
from polyarch.numa.host.podresources import answers
from polyarch.numa.host.podresources.address import Address
from polyarch.numa.host.podresources.client import LONGEST_ANSWER, Counting, Function, PodResourcesError
from polyarch.numa.host.podresources.v1 import api_pb2 as api

FILES: dict[Function, str] = {
    "list": "list.json",
    "get_allocatable_resources": "get_allocatable_resources.json",
    "get": "get.json",
}

M = TypeVar("M", bound=Message)


class SavedAnswers:
    """Reads the files anew for each call."""

    def __init__(self, address: Address, *, counting: Counting) -> None:
        self._folder = address.path
        self._counting = counting

    async def until_ready(self) -> None:
        """At once: a file that is missing is a failed call."""

    async def list(self) -> list[ListedPod]:
        pods, unnamed = answers.listed(self._read("list", api.ListPodResourcesResponse()))
        if unnamed:
            self._counting.pods_unnamed(unnamed)
        return pods

    async def allocatable(self) -> Allocatable:
        return answers.allocatable(self._read("get_allocatable_resources", api.AllocatableResourcesResponse()))

    async def get(self, namespace: str, name: str) -> ListedPod:
        """The pod of ``get.json`` if that is the wanted one; where there is no such file, out of ``list.json``."""
        if not self._path("get").exists():
            pods = await self.list()
        else:
            pod = answers.got(self._read("get", api.GetPodResourcesResponse()))
            pods = [pod] if pod else []
        for pod in pods:
            if (pod.namespace, pod.name) == (namespace, name):
                return pod
        self._counting.call_failed("get")
        raise PodResourcesError("get", f"{self._folder} has no pod {namespace}/{name}")

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _path(self, function: Function) -> Path:
        return self._folder / FILES[function]

    def _read(self, function: Function, answer: M) -> M:
        path = self._path(function)
        try:
            with path.open("rb") as file:
                text = file.read(LONGEST_ANSWER + 1)
            if len(text) > LONGEST_ANSWER:
                raise ValueError(f"more than {LONGEST_ANSWER >> 20} MiB, the longest answer that is read")
            document = json.loads(text)
            if not isinstance(document, dict):
                raise ParseError("not a JSON object")
            return ParseDict(document, answer, ignore_unknown_fields=True)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        except (ParseError, ValueError, RecursionError) as error:
            problem = f"{path}: {error}"
        self._counting.call_failed(function)
        raise PodResourcesError(function, problem)
