"""What a command does not read before its first request."""

import os
import subprocess
import sys

import pytest
import trustme

pytestmark = pytest.mark.req("RG-161")

SCRIPT = """
import os
from polyarch.cli.images.inspect import STORE, load_http_client
before = [os.environ.get(name) for name in STORE]
{load}
from aiohttp import connector
assert [os.environ.get(name) for name in STORE] == before
made = (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED)
print(*(len(context.get_ca_certs()) for context in made))
"""


@pytest.mark.parametrize(("load", "read"), [("load_http_client()", "0 0"), ("", "1 1")])
@pytest.mark.parametrize("with_directory", [True, False])
def test_the_certificates_that_nobody_asks_for_are_not_read(tmp_path, load, read, with_directory):
    """The second row shows what the first saves; the environment is as it was."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    environ = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    environ["SSL_CERT_FILE"] = str(tmp_path / "ca.pem")
    if with_directory:
        environ["SSL_CERT_DIR"] = str(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(load=load)], env=environ, check=True, capture_output=True, text=True
    )
    assert ran.stdout.strip() == read


def test_a_usage_error_needs_no_http_client():
    """What is wrong with a command line is said before anything is loaded that could ask."""
    script = (
        "import sys\nfrom polyarch.cli import main\n"
        "assert main(['inspect', 'a b']) == 2\nassert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
