"""The kubelet's ``/configz``: its configuration with flags and drop-ins, requested at the kubelet's own port.

It needs the permission ``nodes/configz``. The API server's proxy would answer, too, but whoever may use it may run
commands in every pod of the node, so it is never used. The pod's token is sent only to a server whose certificate
verifies, unless somebody chose otherwise.
"""

from typing import Final

import msgspec

from polyarch.clock import Clock
from polyarch.kube.errors import ApiError, ConnectionFailed, KubernetesError
from polyarch.kube.requests import Request
from polyarch.kube.settings import Configuration, Pem
from polyarch.kube.transport import Transport, TransportSettings
from polyarch.numa.host.kubelet import ConfigzUnavailable

KUBELET_PORT: Final = 10250
REJECTED_STATUSES: Final = frozenset({401, 403, 404})
HINT: Final = "; give the authority of kubelets with --kubelet-ca, or use --kubelet-config=file"
REQUEST_TIMEOUT: Final = 10.0
"""Seconds: the kubelet is on this machine."""


class KubeletPort:
    """The port of the kubelet of this node."""

    def __init__(self, configuration: Configuration, *, clock: Clock, ca: str = "", insecure: bool = False) -> None:
        """``configuration`` is that of the API server: its credentials are used, and its authority unless there is a
        file ``ca``. ``insecure``: any certificate will do.
        """
        authority = Pem(path="--kubelet-ca", field="", file=ca) if ca else configuration.tls.ca
        tls = msgspec.structs.replace(configuration.tls, ca=authority, server_name="", skip_verify=insecure)
        self._configuration = msgspec.structs.replace(configuration, tls=tls, proxy=None)
        self._clock = clock
        self._server = ""

    def is_at(self, address: str, port: int = KUBELET_PORT) -> None:
        """The node's ``InternalIP``, as its Node says; empty: not known yet."""
        host = f"[{address}]" if ":" in address else address
        self._server = f"https://{host}:{port}" if address else ""

    async def get(self) -> bytes:
        """The answer of ``/configz``; raises ConfigzUnavailable."""
        if not self._server:
            raise ConfigzUnavailable("configz: the InternalIP of the node is not known yet", refused=False)
        configuration = msgspec.structs.replace(self._configuration, server=self._server)
        request = Request("GET", "/configz", "get", "configz")
        try:
            # A request every ten minutes at most: no connection is kept for it.
            async with Transport(
                configuration,
                role="numa-exporter",
                clock=self._clock,
                settings=TransportSettings(timeout=REQUEST_TIMEOUT),
            ) as transport:
                return await transport.send(request, retry=False)
        except ApiError as error:
            raise ConfigzUnavailable(str(error), refused=error.status in REJECTED_STATUSES) from error
        except ConnectionFailed as error:
            raise ConfigzUnavailable(f"{error}{HINT if error.permanent else ''}", refused=error.permanent) from error
        except KubernetesError as error:
            raise ConfigzUnavailable(str(error), refused=False) from error
