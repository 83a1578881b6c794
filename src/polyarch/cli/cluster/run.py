"""``polyarch run ROLE``: one process of the operator (DESIGN section 4).

The flags are what a process cannot read from the cluster. Once it serves it prints one line of JSON on stdout that says
where; logs go to stderr. SIGTERM ends it in order: unready, drained, Lease given back.
"""

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import App, Parameter

from polyarch.cli.collecting import collect_as_usual
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.process.roles import ProcessSettings, Role
from polyarch.kube.runtime.lease import LeadershipError
from polyarch.kube.serving.certificates import CertificateError
from polyarch.oci.auth.credential_providers import InvalidProviderConfiguration, ProviderConfiguration
from polyarch.oci.mirrors.toml_files import InvalidConfiguration
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.placement.operator.objects import DEFAULT_NAMESPACE
from polyarch.run import process
from polyarch.run.settings import LogFormat, RegistrySettings, RunSettings


class Choice(Enum):
    """What can be run: the modules of ``polyarch.run`` whose roles are played together in the process."""

    PLACEMENT_WEBHOOK = ("placement_webhook",)
    PLACEMENT_CONTROLLER = ("placement_controller",)
    ALL = ("placement_webhook", "placement_controller")

    @property
    def label(self) -> str:
        """As it is typed."""
        return self.name.lower().replace("_", "-")

    def roles(self) -> tuple[Role, ...]:
        """Imported only now: a process needs what its own roles need."""
        return tuple(importlib.import_module(f"polyarch.run.{module}").ROLE for module in self.value)


DEFAULTS = ProcessSettings(namespace=DEFAULT_NAMESPACE)

EPILOGUE = """Examples:

- `polyarch run all --cert-dir ./certificates` every role in one process, with your kubeconfig
- `polyarch run placement-controller --bind=` one role as its Deployment starts it

Exit codes:

- 0: ended by SIGTERM, everything handed over
- 2: the command line or a file it names is wrong
- 3: it could not go on: no API server, a port in use, the lead lost
"""

app = App(name="run", help="Run one process of the operator.", help_epilogue=EPILOGUE)


@app.default
def run(
    role: Annotated[Choice, Parameter(help="Which process; `all` is every role in one.")],
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], help="Where polyarch itself runs.")] = (
        DEFAULTS.namespace
    ),
    kubeconfig: Annotated[str | None, Parameter(help="Default: as kubectl, or the pod's own account.")] = None,
    context: Annotated[str | None, Parameter(help="A context of the kubeconfig.")] = None,
    bind: Annotated[str, Parameter(help="Address to listen on; empty for all.")] = DEFAULTS.bind,
    port: Annotated[int, Parameter(help="Port of the webhook; 0 takes a free one.")] = DEFAULTS.port,
    metrics_port: Annotated[int, Parameter(help="Port of /metrics.")] = DEFAULTS.metrics_port,
    health_port: Annotated[int, Parameter(help="Port of /healthz and /readyz.")] = DEFAULTS.health_port,
    cert_dir: Annotated[str, Parameter(help="Folder with tls.crt and tls.key, followed while they change.")] = "",
    global_pull_secret_namespace: Annotated[str, Parameter(help="Default on OpenShift: openshift-config.")] = "",
    global_pull_secret_name: Annotated[str, Parameter(help="Default on OpenShift: pull-secret.")] = "",
    registries_conf: Annotated[str | None, Parameter(help="Mirrors, blocked and insecure registries.")] = None,
    ca: Annotated[
        list[str] | None, Parameter(negative="", help="Certificates (PEM) to trust for registries; repeatable.")
    ] = None,
    allow_address: Annotated[
        list[str] | None,
        Parameter(negative="", help="Range (CIDR) that registries may be in although refused; repeatable."),
    ] = None,
    image_credential_provider_config: Annotated[str, Parameter(help="As the kubelet's flag of that name.")] = "",
    image_credential_provider_bin_dir: Annotated[str, Parameter(help="As the kubelet's flag of that name.")] = "",
    leader_elect: Annotated[bool, Parameter(help="Take turns with other replicas by a Lease.")] = True,
    log_format: LogFormat = "json",
) -> int:
    """Run one process of the operator; returns when it has ended."""
    name, roles = role.label, role.roles()
    if not cert_dir and any(each.needs_certificate for each in roles):
        raise UsageError(f"run {name}: --cert-dir is needed, as API servers call webhooks over TLS only")
    if bool(global_pull_secret_namespace) != bool(global_pull_secret_name):
        raise UsageError("--global-pull-secret-namespace and --global-pull-secret-name go together: give both or none")
    secret = (global_pull_secret_namespace, global_pull_secret_name) if global_pull_secret_name else None
    settings = RunSettings(
        process=ProcessSettings(
            namespace=namespace,
            bind=bind,
            port=port,
            metrics_port=metrics_port,
            health_port=health_port,
            cert_dir=cert_dir,
            leader_elect=leader_elect,
        ),
        kubeconfig=kubeconfig,
        context=context,
        log_format=log_format,
        registries=RegistrySettings(
            global_pull_secret=secret,
            registries_conf=registries_conf,
            ca=tuple(ca or ()),
            allow_addresses=tuple(allow_address or ()),
            credential_providers=_providers(image_credential_provider_config, image_credential_provider_bin_dir),
        ),
    )
    collect_as_usual()
    try:
        _runner()(process.run(name, roles, settings))
    except (ConfigurationError, InvalidConfiguration, InvalidSetting) as error:
        raise UsageError(f"run {name}: {error}") from None
    except (KubernetesError, OSError) as error:
        raise CouldNotComplete(f"run {name}: {error}") from None
    except BaseExceptionGroup as group:
        known, unknown = group.split((OSError, KubernetesError, CertificateError, LeadershipError))
        if known is None or unknown is not None:
            raise
        problem = "; ".join(dict.fromkeys(str(error) for error in _leaves(known)))
        raise CouldNotComplete(f"run {name}: {problem}") from None
    return 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """uvloop where it is installed (extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _providers(path: str, directory: str) -> ProviderConfiguration | None:
    if bool(path) != bool(directory):
        raise UsageError(
            "--image-credential-provider-config and --image-credential-provider-bin-dir go together: give both or none"
        )
    if not path:
        return None
    try:
        content = yaml.safe_load(Path(path).read_bytes())
        return ProviderConfiguration.from_mapping(content, directory=directory, origin=path)
    except (OSError, yaml.YAMLError, InvalidProviderConfiguration) as error:
        raise UsageError(f"--image-credential-provider-config {path}: {error}") from None
