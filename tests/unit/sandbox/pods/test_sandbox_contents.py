"""Tokens of pods that are run are replaced before they expire."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.client import Client
from polyarch.kube.informer import InformerFactory
from polyarch.kube.responses import IssuedToken
from polyarch.sandbox.pods.environment import ContainerFacts
from polyarch.sandbox.pods.spec import PodDocument
from polyarch.sandbox.pods.volumes import Cluster, PodFolder, PodVolumes


class Issuer:
    """Issues numbered tokens that live as long as was asked for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[dict[str, Any]] = []

    async def token(self, namespace: str, account: str, **options: Any) -> IssuedToken:
        self.asked.append({"account": f"{namespace}/{account}", **options})
        until = self.clock.now() + dt.timedelta(seconds=options["expiration_seconds"])
        return IssuedToken(f"token {len(self.asked)}", until.isoformat())


@pytest.mark.req("SB-011")
@pytest.mark.parametrize("seconds", [600, 3607])
async def test_a_token_is_replaced_when_four_fifths_of_its_life_are_over(tmp_path: Path, seconds: int) -> None:
    clock = ManualClock()
    issuer = Issuer(clock)
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}
    document = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"serviceAccountName": "s", "volumes": [{"name": "kube", "projected": {"sources": [token]}}]},
    }
    pod = msgspec.convert(document, PodDocument)
    folder = PodFolder(tmp_path)
    facts = ContainerFacts(pod, "127.244.0.1", "10.250.0.1")
    client = cast("Client", issuer)
    cluster = Cluster("https://127.0.0.1:1", tmp_path / "ca.crt")
    contents = PodVolumes(
        pod, folder, tmp_path, client, InformerFactory(client), cluster=cluster, clock=clock, changed=lambda: None
    )
    keeping = asyncio.create_task(contents.keep(lambda: facts))
    await asyncio.sleep(0)
    await contents.fill(facts)
    path = folder.volume("kube") / "token"
    assert path.read_text() == "token 1"
    assert issuer.asked[0] == {
        "account": "n/s",
        "audiences": (),
        "expiration_seconds": seconds,
        "bound_pod": ("p", "u"),
    }
    await clock.run(0.8 * seconds - 1)
    assert path.read_text() == "token 1"
    await clock.run(2)
    assert path.read_text() == "token 2"
    await clock.run(0.8 * seconds + 1)
    assert path.read_text() == "token 3"
    kubeconfig = msgspec.json.decode(folder.kubeconfig.read_bytes())
    assert kubeconfig["users"][0]["user"] == {"tokenFile": str(path)}
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
