"""Proxies of the environment for registries (RG-100), by the rules of ``polyarch.proxies``.

An unusable proxy is a usage error at the start, because it would affect many registries.
"""

from collections.abc import Mapping

from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.proxies import Proxies, Proxy

__all__ = ["Proxies", "Proxy", "of_environment"]


def of_environment(environ: Mapping[str, str]) -> Proxies:
    """The proxies; InvalidSetting names the variable that is not a proxy URL and never its value."""
    proxies = Proxies(environ)
    for problem in proxies.problems:
        raise InvalidSetting(str(problem))
    return proxies
