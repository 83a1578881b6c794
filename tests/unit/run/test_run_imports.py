"""What a role's process loads: idle memory is bounded, and most of it is modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

COMMAND_LINE = (
    "rich",
    "pygments",
    "cyclopts",
    "argparse",
    "polyarch.cli.app",
    "polyarch.sandbox",
    "polyarch.manifests",
)
UNUSED = (*COMMAND_LINE, "cryptography", "numpy", "sqlite3", "aiohttp.web_app", "aiohttp.web_fileresponse")
IMPORTED = f"print('imported', *(name for name in {UNUSED!r} if name in sys.modules))"

ROLES = f"""
import sys
import polyarch.run.libraries
from polyarch.run.placement_controller import ROLE
from polyarch.run.placement_webhook import ROLE
from polyarch.run.taints import ROLE
from polyarch.run.logs import configure
configure("json")
{IMPORTED}
"""

PLACEMENT = f"""
import sys
import polyarch.run.libraries
from polyarch.run.placement_controller import ROLE
from polyarch.run.placement_webhook import ROLE
unused = (*{UNUSED!r}, "polyarch.taints.pod_rules", "polyarch.taints.patch", "polyarch.taints.webhook")
print('imported', *(name for name in unused if name in sys.modules))
"""

COMMAND = f"""
import sys
from polyarch.cli import main
sys.argv = ["polyarch", "run", "all", "--cert-dir=.", "--kubeconfig=missing"]
main()
{IMPORTED}
"""


NODE_SIDE = f"""
import sys
import polyarch.run.libraries
from polyarch.cli.roles import role_process
from polyarch.run.exec_monitor import ROLE
from polyarch.run.logs import configure
from polyarch.placement import exec_monitor_node
configure("json")
unused = (*{UNUSED!r}, "polyarch.taints", "yaml", "uvloop", "polyarch.oci", "polyarch.kube.admission")
print('imported', *(name for name in unused if name in sys.modules))
"""

OPERATOR = f"""
import sys
import polyarch.run.libraries
from polyarch.run.operator import ROLE
from polyarch.run.logs import configure
configure("json")
unused = {[*(each for each in UNUSED if each != "cryptography"), "yaml", "uvloop", "polyarch.oci.inspector"]!r}
print('imported', *(name for name in unused if name in sys.modules))
"""

BUILDER = f"""
import sys
import polyarch.run.libraries
from polyarch.run.builder import ROLE
from polyarch.run.logs import configure
configure("json")
print('imported', *(name for name in (*{UNUSED!r}, "tarfile", "yaml") if name in sys.modules))
"""

EXPORTER = f"""
import sys
import polyarch.run.libraries
from polyarch.cli.roles import numa_process
from polyarch.run.numa_exporter import ROLE
from polyarch.run.logs import configure
configure("json")
unused = (*{UNUSED!r}, "polyarch.taints", "polyarch.placement", "uvloop", "polyarch.oci", "yaml")
print('imported', *(name for name in unused if name in sys.modules))
"""

EXTENDER = f"""
import sys
import polyarch.run.libraries
from polyarch.cli.roles import numa_process
from polyarch.run.numa_extender import ROLE
from polyarch.run.logs import configure
configure("json")
unused = ({", ".join(repr(each) for each in UNUSED if each != "numpy")}, "polyarch.taints", "polyarch.placement")
print('imported', *(name for name in (*unused, "yaml", "polyarch.oci") if name in sys.modules))
"""


@pytest.mark.req("PL-810")
@pytest.mark.parametrize(
    "code",
    [ROLES, PLACEMENT, COMMAND, NODE_SIDE, OPERATOR, BUILDER, EXPORTER, EXTENDER],
    ids=[
        "the roles",
        "placement without taints",
        "polyarch run",
        "the monitor on every node",
        "the operator",
        "the builder",
        "the exporter ne_150",
        "the extender ns_171",
    ],
)
def test_a_role_loads_nothing_that_only_terminals_or_other_commands_need(code: str, tmp_path: Path) -> None:
    """rich and pygments alone are 3 MiB; cryptography is for processes that issue certificates."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


IN_A_POD = """
import sys
from pathlib import Path
from polyarch.kube import config
folder = Path("account")
config.running_in_cluster.__defaults__ = (folder,)
config.in_cluster.__defaults__ = (None, folder)
where = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
found = config.load(environ={"HOME": "nowhere", **where})
print(found.server, *(name for name in ("yaml", "polyarch.kube.kubeconfig") if name in sys.modules))
"""


@pytest.mark.req("PL-810")
def test_a_pod_reads_no_yaml_to_find_its_api_server(tmp_path: Path) -> None:
    (tmp_path / "account").mkdir()
    for name in ("token", "ca.crt"):
        (tmp_path / "account" / name).write_text("-")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_POD], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "https://10.96.0.1:443\n"), done.stderr


AUTHORITIES = """
import ssl, sys
import polyarch.run.libraries
import aiohttp.connector
print(len(aiohttp.connector._SSL_CONTEXT_VERIFIED.get_ca_certs()), len(ssl.create_default_context().get_ca_certs()) > 0)
"""


@pytest.mark.req("PL-810")
def test_the_systems_cas_are_loaded_by_who_needs_them(tmp_path: Path) -> None:
    """2 MiB in each process, which aiohttp would take on import; a client that asks for them still gets them."""
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    done = subprocess.run(
        [sys.executable, "-c", AUTHORITIES],
        env={**os.environ, "SSL_CERT_FILE": str(authority)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr


BUFFERS = """
import asyncio, gc, ssl, sys
import polyarch.run.libraries
BODY = bytes(range(256)) * 8192
async def serve(reader, writer):
    writer.write(await reader.readexactly(len(BODY)))
    await writer.drain()
async def main():
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(sys.argv[2])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=sys.argv[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
    writer.write(BODY)
    print(await reader.readexactly(len(BODY)) == BODY)
    buffers = [each._ssl_buffer for each in gc.get_objects() if isinstance(each, asyncio.sslproto.SSLProtocol)]
    print(sorted({len(each) >> 10 for each in buffers}))
asyncio.run(main())
"""


@pytest.mark.req("PL-810")
def test_a_connection_over_tls_holds_little_memory_and_carries_bodies_of_any_size(tmp_path: Path) -> None:
    """256 KiB for each watch of an operator are 10 MiB."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    done = subprocess.run(
        [sys.executable, "-c", BUFFERS, str(tmp_path / "ca.pem"), str(tmp_path / "own.pem")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "True\n[16]\n", done.stderr


@pytest.mark.req("PL-810")
def test_the_node_side_of_the_monitor_starts_over_and_ends_as_any_command(tmp_path: Path) -> None:
    """It leaves the command line's libraries behind; what the command line would have said it says itself."""
    flags = ("--side", "node", "--node-name", "worker-1", "--kubeconfig", "missing")
    done = subprocess.run(
        [sys.executable, "-m", "polyarch", "run", "exec-monitor", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("polyarch: run exec-monitor: missing")
    assert "Traceback" not in done.stderr
