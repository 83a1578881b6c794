"""The parts of a pod that are needed to run it: core/v1 Pod, read once for each pod that is run.

Pure wire types. The nodes' store keeps ``sandbox.nodes.pods``, which has only what simulating a pod needs."""

import msgspec

from polyarch.objects import ObjectMeta


class _Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pass


class KeyToPath(_Wire, frozen=True):
    key: str
    path: str
    mode: int | None = None


class ObjectFieldSelector(_Wire, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(_Wire, frozen=True):
    resource: str
    container_name: str = ""
    divisor: str | int = "1"


class KeySelector(_Wire, frozen=True):
    """``configMapKeyRef`` or ``secretKeyRef``."""

    key: str
    name: str = ""
    optional: bool | None = None


class ValueFrom(_Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class Variable(_Wire, frozen=True):
    """``env[]``."""

    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class Reference(_Wire, frozen=True):
    """A ConfigMap or Secret by name."""

    name: str = ""
    optional: bool | None = None


class VariablesFrom(_Wire, frozen=True):
    """``envFrom[]``."""

    prefix: str = ""
    config_map_ref: Reference | None = None
    secret_ref: Reference | None = None


class Mount(_Wire, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class Port(_Wire, frozen=True):
    container_port: int
    name: str = ""


class Header(_Wire, frozen=True):
    name: str
    value: str = ""


class HttpGet(_Wire, frozen=True):
    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: list[Header] | None = None


class TcpSocket(_Wire, frozen=True):
    port: int | str
    host: str = ""


class Exec(_Wire, frozen=True):
    command: list[str] | None = None


class Probe(_Wire, frozen=True):
    """The API server has filled in the defaults of the numbers."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: Exec | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Sleep(_Wire, frozen=True):
    seconds: int = 0


class Hook(_Wire, frozen=True):
    exec: Exec | None = None
    sleep: Sleep | None = None


class Lifecycle(_Wire, frozen=True):
    pre_stop: Hook | None = None


class Resources(_Wire, frozen=True):
    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class Container(_Wire, frozen=True):
    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None
    env_from: list[VariablesFrom] | None = None
    volume_mounts: list[Mount] | None = None
    ports: list[Port] | None = None
    resources: Resources = Resources()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"


class ConfigMapVolume(_Wire, frozen=True):
    name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool | None = None
    default_mode: int | None = None


class SecretVolume(_Wire, frozen=True):
    secret_name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool | None = None
    default_mode: int | None = None


class SecretProjection(_Wire, frozen=True):
    name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool | None = None


class DownwardFile(_Wire, frozen=True):
    path: str
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardVolume(_Wire, frozen=True):
    items: list[DownwardFile] | None = None
    default_mode: int | None = None


class TokenProjection(_Wire, frozen=True):
    """``serviceAccountToken``; the audience "" is the API server's own."""

    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class Source(_Wire, frozen=True):
    """``projected.sources[]``."""

    config_map: ConfigMapVolume | None = None
    secret: SecretProjection | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None


class ProjectedVolume(_Wire, frozen=True):
    sources: list[Source] | None = None
    default_mode: int | None = None


class HostPath(_Wire, frozen=True):
    path: str
    type: str | None = None


class Volume(_Wire, frozen=True):
    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: dict[str, object] | None = None
    host_path: HostPath | None = None


class PodSpec(_Wire, frozen=True):
    node_name: str = ""
    service_account_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    termination_grace_period_seconds: int | None = None


class PodDocument(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()

    def container(self, name: str) -> Container:
        """The container or init container of this name; LookupError if there is none."""
        containers: list[Container] = [*(self.spec.init_containers or ()), *(self.spec.containers or ())]
        for each in containers:
            if each.name == name:
                return each
        raise LookupError(f"pod {self.metadata.key} has no container {name!r}")


class ConfigMap(_Wire, frozen=True):
    """core/v1 ConfigMap; ``binaryData`` is decoded from base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None

    @property
    def content(self) -> dict[str, bytes]:
        """All keys, as files of a volume hold them."""
        return {key: text.encode() for key, text in (self.data or {}).items()} | (self.binary_data or {})
