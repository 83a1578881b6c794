"""The proxies of the environment for registries (RG-100): the rules are ``polyarch.proxies``, as for an API server.

Registries are many, so a proxy that cannot be used is a usage error at the start, not one of some images.
"""

from collections.abc import Mapping

from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.proxies import Proxies, Proxy

__all__ = ["Proxies", "Proxy", "of_environment"]


def of_environment(environ: Mapping[str, str]) -> Proxies:
    """Raises InvalidSetting, which names the variable that is no URL of a proxy and never its value."""
    proxies = Proxies(environ)
    for problem in proxies.problems:
        raise InvalidSetting(str(problem))
    return proxies
