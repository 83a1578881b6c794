"""With which command, variables and files a container is started (SB-011).

A pod names an image; here its program is found in what this machine has: polyarch itself, the stock kube-scheduler, or
buildah. Every start reads anew what its variables are made of.
"""

import contextlib
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Final, TypeVar

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CONFIGMAPS, SECRETS
from polyarch.objects import Secret
from polyarch.sandbox.files import write_private
from polyarch.sandbox.pods import containers, environment
from polyarch.sandbox.pods.contents import Cluster
from polyarch.sandbox.pods.environment import Facts
from polyarch.sandbox.pods.programs import buildah, installed, kube_scheduler
from polyarch.sandbox.pods.programs.arguments import rewritten
from polyarch.sandbox.pods.programs.buildah import Workplace
from polyarch.sandbox.pods.programs.images import is_builder, is_scheduler
from polyarch.sandbox.pods.programs.kube_scheduler import Surroundings
from polyarch.sandbox.pods.running_pod import RunningPod
from polyarch.sandbox.pods.spec import ConfigMap
from polyarch.sandbox.pods.spec import Container as ContainerSpec
from polyarch.sandbox.processes import Command

T = TypeVar("T")
JOB_LABEL: Final = "batch.kubernetes.io/controller-uid"
"""The UID of the Job that a pod is of."""


class Commands:
    """The commands of all containers of a sandbox."""

    def __init__(
        self,
        client: Client,
        root: Path,
        *,
        cluster: Cluster,
        kube_scheduler: str,
        environment: Mapping[str, str],
    ) -> None:
        self._client = client
        self._root = root
        self._cluster = cluster
        self._kube_scheduler = kube_scheduler
        self._environment = environment

    async def of(self, pod: RunningPod, name: str, attempt: int) -> Command:
        """The start number ``attempt`` of this container. Raises ``Missing`` and ``NotInTheImage``."""
        container = pod.document.container(name)
        variables = await self._variables(pod, name)
        mounts = pod.folder.mounts(pod.document, container, pod.host)
        moved = {key: rewritten(value, mounts) for key, value in variables.items()}
        return Command(
            name=containers.record_name(pod.bound.uid, name),
            arguments=self._arguments(pod, container, variables, mounts),
            environment=moved,
            log=str(pod.folder.prepare_start(container, attempt)),
            pod=str(pod.bound.key),
            container=name,
            attempt=attempt,
        )

    def _arguments(
        self, pod: RunningPod, container: ContainerSpec, variables: Mapping[str, str], mounts: Mapping[str, str]
    ) -> tuple[str, ...]:
        if is_builder(container.image):
            job = (pod.document.metadata.labels or {}).get(JOB_LABEL, pod.bound.uid)
            attempts = self._root / "builds" / job
            return buildah.command_line(container, mounts, Workplace(fate=str(pod.folder.fate), attempts=str(attempts)))
        if not is_scheduler(container.image):
            return installed.command_line(container, variables, mounts, address=pod.bound.loopback)
        target = pod.folder.configuration(container.name)
        surroundings = Surroundings(
            program=self._kube_scheduler,
            address=pod.bound.loopback,
            kubeconfig=str(pod.folder.kubeconfig),
            configuration=str(target),
        )
        arguments = kube_scheduler.command_line(container, variables, mounts, surroundings)
        if source := kube_scheduler.configured_by(container, variables, mounts):
            with contextlib.suppress(OSError):  # the program says what is wrong with its file
                text = Path(source).read_text(encoding="utf-8", errors="replace")
                write_private(target, kube_scheduler.configuration(text, surroundings).encode())
        return arguments

    async def _variables(self, pod: RunningPod, name: str) -> dict[str, str]:
        """Read anew for each start: variables are those of the objects as they are then."""
        container, namespace = pod.document.container(name), pod.bound.key.namespace
        config_maps, secrets = environment.references(container)
        facts = Facts(
            pod.document,
            pod.bound.loopback,
            pod.bound.host_address,
            {
                each: found
                for each in config_maps
                if (found := await self._get(self._client.get(CONFIGMAPS, each, namespace=namespace, type=ConfigMap)))
            },
            {
                each: secret
                for each in secrets
                if (secret := await self._get(self._client.get(SECRETS, each, namespace=namespace, type=Secret)))
            },
        )
        host, _, port = self._cluster.server.rpartition("/")[2].rpartition(":")
        base = {
            **self._environment,
            "HOSTNAME": pod.bound.key.name,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBECONFIG": str(pod.folder.kubeconfig),
            # Else a file in the folder from which the sandbox was started could stand in for a module.
            "PYTHONSAFEPATH": "1",
        }
        return environment.variables(container, facts, base)

    @staticmethod
    async def _get(request: Coroutine[object, object, T]) -> T | None:
        try:
            return await request
        except NotFound:
            return None
