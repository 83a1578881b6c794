"""A pod's folder, ``pods/<uid>/`` of the sandbox, and its volumes, kept current: objects by watches, tokens by time.

Every mounted ConfigMap and Secret is watched by name while its pod runs, so that a change is in the pod's folder within
a second, and an idle pod costs no request. Files are replaced all at once, as kubelets do: a file is a symbolic link to
``..data/file``, and ``..data`` one to a folder that is never changed. A reader sees all the old files or all the new
ones.
"""

import asyncio
import datetime as dt
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer, InformerFactory
from polyarch.kube.resources import CONFIGMAPS, SECRETS
from polyarch.objects import ObjectKey, Secret
from polyarch.sandbox.files import write_json, write_private
from polyarch.sandbox.pods.environment import (
    ContainerFacts,
    File,
    MissingReference,
    projection,
    token_path,
    tokens,
    volume_files,
    volume_references,
)
from polyarch.sandbox.pods.spec import ConfigMap, Container, HostPath, PodDocument, Volume

DATA = "..data"


class PodFolder:
    """The paths of one pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubeconfig = root / "kubeconfig"

    def volume(self, name: str) -> Path:
        return self.root / "volumes" / name

    def log(self, container: str, attempt: int) -> Path:
        return self.root / "logs" / f"{container}.{attempt}.log"

    def configuration(self, container: str) -> Path:
        """A configuration file that was changed for this machine."""
        return self.root / "configurations" / container

    def termination(self, container: str) -> Path:
        return self.root / "termination" / container

    @property
    def fault(self) -> Path:
        """Where a process of the pod says what shall become of it."""
        return self.root / "fault"

    def mounts(self, pod: PodDocument, container: Container, host: Path) -> dict[str, str]:
        """mountPath → folder on this machine; also the container's termination log."""
        volumes = {volume.name: volume for volume in pod.spec.volumes or ()}
        found = {container.termination_message_path: str(self.termination(container.name))}
        for mount in container.volume_mounts or ():
            volume = volumes[mount.name]
            path = host_path(volume.host_path, host) if volume.host_path is not None else self.volume(mount.name)
            found[mount.mount_path] = str(path / mount.sub_path) if mount.sub_path else str(path)
        return found

    def prepare_start(self, container: Container, attempt: int) -> Path:
        """Empty its termination log, delete logs older than the previous attempt; return where it logs."""
        write_private(self.termination(container.name), b"")
        log = self.log(container.name, attempt)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log(container.name, attempt - 2).unlink(missing_ok=True)
        return log

    def delete(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def make_volume(folder: PodFolder, volume: Volume, host: Path) -> None:
    """Create what is not filled from objects: an emptyDir, or what a hostPath names. Raises MissingReference."""
    if volume.empty_dir is not None:
        folder.volume(volume.name).mkdir(parents=True, exist_ok=True)
    elif volume.host_path is not None:
        _check_host_path(volume.host_path, host)
    elif projection(volume) is None:
        raise MissingReference(f'volume "{volume.name}": the nodes of the sandbox have no volumes of this kind')


def host_path(volume: HostPath, host: Path) -> Path:
    """A node's files are below ``host``; ``..`` leads nowhere, as the API server refuses it."""
    return host / PurePosixPath(volume.path).relative_to("/")


def _check_host_path(volume: HostPath, host: Path) -> None:
    path = host_path(volume, host)
    match volume.type or "":
        case "" | "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        case "FileOrCreate":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        case "Directory" if path.is_dir():
            pass
        case "File" if path.is_file():
            pass
        case "Socket" if path.is_socket():
            pass
        case other:
            raise MissingReference(
                f"hostPath type check failed: {volume.path} is not a {other}; the node's files are in {host}"
            )


def fill(folder: Path, files: Mapping[str, File]) -> bool:
    """Make these the files of the folder; False if they were already."""
    if _read(folder) == {path: file.content for path, file in files.items()}:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    content = folder / f"..{secrets.token_hex(8)}"
    content.mkdir()
    for path, file in files.items():
        target = content / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    link, partial = folder / DATA, folder / f"{DATA}_tmp"
    before = link.readlink() if link.is_symlink() else None
    partial.unlink(missing_ok=True)
    partial.symlink_to(content.name)
    partial.replace(link)
    names = {PurePosixPath(path).parts[0] for path in files}
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    if before is not None:
        shutil.rmtree(folder / before, ignore_errors=True)
    return True


def _read(folder: Path) -> dict[str, bytes] | None:
    """The present files; None if the folder was never filled."""
    root = folder / DATA
    if not root.is_dir():
        return None
    real = root.resolve()
    return {str(path.relative_to(real)): path.read_bytes() for path in real.rglob("*") if path.is_file()}


# -- volumes, filled again when an object has changed or a token is due ------------------------------------------------


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


class PodVolumes:
    """The volumes of one pod. ``changed`` is called when one of its objects has changed."""

    def __init__(
        self,
        pod: PodDocument,
        folder: PodFolder,
        host: Path,
        client: Client,
        informers: InformerFactory,
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
        config_maps, secrets = volume_references(pod)
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

    async def facts(self, facts: ContainerFacts) -> ContainerFacts:
        """``facts`` with all objects that are mounted."""
        async with deadline(self._clock, SYNC_SECONDS):
            for informer in self._watches:
                await informer.synced()
        return msgspec.structs.replace(
            facts,
            config_maps=_found(self._config_maps, facts.pod.metadata.namespace),
            secrets=_found(self._secrets, facts.pod.metadata.namespace),
            tokens={
                (each.audience, each.expiration_seconds): await self._token(each.audience, each.expiration_seconds)
                for each in tokens(facts.pod)
            },
        )

    async def fill(self, facts: ContainerFacts) -> None:
        """Bring all volumes up to date; raises MissingReference if one cannot be mounted."""
        async with self._turn:
            self._stale.clear()
            known = await self.facts(facts)
            for volume in facts.pod.spec.volumes or ():
                if projection(volume) is None:
                    make_volume(self._folder, volume, self._host)
                    continue
                try:
                    files = volume_files(volume, known)
                except MissingReference as problem:
                    raise MissingReference(f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}') from None
                fill(self._folder.volume(volume.name), files)
            if (token := token_path(facts.pod)) is not None and not self._folder.kubeconfig.exists():
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
            raise MissingReference(f'failed to fetch token: serviceaccount "{account}": {error}') from error
        # What the API server grants, which may be less or more than what was asked for.
        life = (dt.datetime.fromisoformat(issued.expiration_timestamp) - self._clock.now()).total_seconds()
        self._tokens[audience, seconds] = issued.token, self._clock.monotonic() + SHARE_OF_LIFE * life
        self._stale.set()  # `keep` sets its alarm anew
        return issued.token

    def refresh(self) -> None:
        """Have :meth:`keep` fill the volumes again."""
        self._stale.set()

    async def keep(self, facts: Callable[[], ContainerFacts]) -> None:
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
            except (MissingReference, KubernetesError, TimeoutError, OSError) as error:
                # The files stay as they are, as on a real node.
                log.warning("volumes not updated", pod=str(self._pod.metadata.key), problem=str(error))
                await self._clock.sleep(RETRY_SECONDS)


def _found(informers: Mapping[str, Informer[Any]], namespace: str) -> dict[str, Any]:
    found = {name: informer.store.get(ObjectKey(namespace, name)) for name, informer in informers.items()}
    return {name: object_ for name, object_ in found.items() if object_ is not None}
