"""The proxies of the environment as a setting of the registry client; the rules themselves: ``test_proxies.py``."""

import pytest

from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.transport.http import of_environment
from polyarch.proxies import Proxy

MARKER = "s3cr3t-marker"


@pytest.mark.req("RG-087", "RG-100")
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "http_proxy"])
def test_a_proxy_that_cannot_be_used_is_a_usage_error_with_its_variable(variable: str) -> None:
    """At the start, and never with the value."""
    with pytest.raises(InvalidSetting, match=f"{variable} has the unsupported scheme 'socks5'") as caught:
        of_environment({variable: f"socks5://u:{MARKER}@p:1080", "NO_PROXY": "*"})
    assert MARKER not in str(caught.value)


@pytest.mark.req("RG-100")
def test_the_environments_proxy_stands_before_a_registry() -> None:
    environment = of_environment({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".inside.example"})
    assert environment.proxy_for("https", "r.example", 443) == Proxy("http://p:3128")
    assert environment.proxy_for("https", "r.inside.example", 443) is None
