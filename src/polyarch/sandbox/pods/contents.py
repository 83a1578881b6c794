"""Fills a pod's volumes and keeps them current: objects by watches, tokens before they expire (SB-011).

Every mounted ConfigMap and Secret is watched by name while its pod runs, so that a change is in the pod's folder within
a second, and an idle pod costs no request.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer, Informers
from polyarch.kube.resources import CONFIGMAPS, SECRETS
from polyarch.objects import Key, Secret
from polyarch.sandbox.files import write_json
from polyarch.sandbox.pods import folders, volumes
from polyarch.sandbox.pods.environment import Facts, Missing
from polyarch.sandbox.pods.folders import PodFolder
from polyarch.sandbox.pods.spec import ConfigMap, PodDocument

log = structlog.get_logger(__name__)

SHARE_OF_LIFE: Final = 0.8
"""Of a token's life; then it is replaced, as kubelets do."""
SYNC_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 2.0


class Cluster:
    """The API server, as pods reach it: its URL and the file of its CA."""

    def __init__(self, server: str, ca: Path) -> None:
        self.server = server
        self.ca = ca

    def kubeconfig(self, namespace: str, token: Path) -> dict[str, object]:
        """What stands in for a pod's in-cluster configuration."""
        cluster = {"server": self.server, "certificate-authority": str(self.ca)}
        context = {"cluster": "sandbox", "user": "pod", "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "pod", "context": context}],
            "current-context": "pod",
        }


class Contents:
    """The volumes of one pod. ``changed`` is called when one of its objects has changed."""

    def __init__(
        self,
        pod: PodDocument,
        folder: PodFolder,
        host: Path,
        client: Client,
        informers: Informers,
        *,
        cluster: Cluster,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._pod = pod
        self._folder = folder
        self._host = host
        self._client = client
        self._informers = informers
        self._cluster = cluster
        self._clock = clock
        self._changed = changed
        self._stale = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tokens: dict[tuple[str, int], tuple[str, float]] = {}
        namespace = pod.metadata.namespace
        config_maps, secrets = volumes.references(pod)
        self._config_maps = {
            name: informers.informer(
                CONFIGMAPS, ConfigMap, namespace=namespace, field_selector=f"metadata.name={name}", required=False
            )
            for name in config_maps
        }
        self._secrets = {
            name: informers.informer(
                SECRETS, Secret, namespace=namespace, field_selector=f"metadata.name={name}", required=False
            )
            for name in secrets
        }
        for informer in self._watches:
            informer.add_handler(self._note)

    @property
    def _watches(self) -> list[Informer[Any]]:
        return [*self._config_maps.values(), *self._secrets.values()]

    def _note(self, _: object) -> None:
        self._stale.set()
        self._changed()

    def close(self) -> None:
        """End its watches."""
        for informer in self._watches:
            informer.remove_handler(self._note)
            self._informers.release(informer)
        self._config_maps, self._secrets = {}, {}

    async def facts(self, facts: Facts) -> Facts:
        """``facts`` with all objects that are mounted."""
        async with deadline(self._clock, SYNC_SECONDS):
            for informer in self._watches:
                await informer.synced()
        return Facts(
            facts.pod,
            facts.pod_address,
            facts.host_address,
            _found(self._config_maps, facts.pod.metadata.namespace),
            _found(self._secrets, facts.pod.metadata.namespace),
            {
                (each.audience, each.expiration_seconds): await self._token(each.audience, each.expiration_seconds)
                for each in volumes.tokens(facts.pod)
            },
        )

    async def fill(self, facts: Facts) -> None:
        """Bring all volumes up to date; raises Missing if one cannot be mounted."""
        async with self._turn:
            self._stale.clear()
            known = await self.facts(facts)
            for volume in facts.pod.spec.volumes or ():
                if volumes.projection(volume) is None:
                    folders.make_volume(self._folder, volume, self._host)
                    continue
                try:
                    files = volumes.files(volume, known)
                except Missing as problem:
                    raise Missing(f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}') from None
                folders.fill(self._folder.volume(volume.name), files)
            if (token := volumes.token_path(facts.pod)) is not None and not self._folder.kubeconfig.exists():
                path = self._folder.volume(token[0]) / token[1]
                write_json(self._folder.kubeconfig, self._cluster.kubeconfig(facts.pod.metadata.namespace, path))

    async def _token(self, audience: str, seconds: int) -> str:
        known = self._tokens.get((audience, seconds))
        if known is not None and known[1] > self._clock.monotonic():
            return known[0]
        pod = self._pod.metadata
        account = self._pod.spec.service_account_name or "default"
        try:
            issued = await self._client.token(
                pod.namespace,
                account,
                audiences=(audience,) if audience else (),
                expiration_seconds=seconds,
                bound_pod=(pod.name, pod.uid),
            )
        except NotFound as error:
            raise Missing(f'failed to fetch token: serviceaccount "{account}": {error}') from error
        # What the API server grants, which may be less or more than what was asked for.
        life = (dt.datetime.fromisoformat(issued.expiration_timestamp) - self._clock.now()).total_seconds()
        self._tokens[audience, seconds] = issued.token, self._clock.monotonic() + SHARE_OF_LIFE * life
        self._stale.set()  # `keep` sets its alarm anew
        return issued.token

    def refresh(self) -> None:
        """Have :meth:`keep` fill the volumes again."""
        self._stale.set()

    async def keep(self, facts: Callable[[], Facts]) -> None:
        """Fill the volumes again whenever an object has changed or a token is due, until cancelled."""
        while True:
            due = min((due for _, due in self._tokens.values()), default=None)
            try:
                async with deadline(self._clock, None if due is None else due - self._clock.monotonic()):
                    await self._stale.wait()
            except TimeoutError:
                pass
            await self._clock.sleep(SETTLE_SECONDS)
            try:
                await self.fill(facts())
            except (Missing, KubernetesError, TimeoutError, OSError) as error:
                # The files stay as they are, as on a real node.
                log.warning("volumes not updated", pod=str(self._pod.metadata.key), problem=str(error))
                await self._clock.sleep(RETRY_SECONDS)


def _found(informers: Mapping[str, Informer[Any]], namespace: str) -> dict[str, Any]:
    found = {name: informer.store.get(Key(namespace, name)) for name, informer in informers.items()}
    return {name: object_ for name, object_ in found.items() if object_ is not None}
