"""Loading aiohttp without the certificates that it reads for itself.

When aiohttp is imported it makes two TLS contexts, each with the system's certificates, for requests that come without
one. Ours bring their own (:mod:`polyarch.oci.transport.tls`), so both are made for nothing, and they take a tenth of
the CPU of inspecting a hundred images (RG-161). OpenSSL looks for the system's certificates where the
environment says; while this one import lasts, that is nowhere. Who used one of those two contexts later would trust
nobody.

For commands only, before they start a thread: the environment belongs to the whole process.
"""

import importlib
import os
import sys

STORE = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def load_http_client() -> None:
    """Imports aiohttp, if nobody has yet; the environment is afterwards what it was."""
    if "aiohttp" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in STORE}
    os.environ.update(dict.fromkeys(STORE, os.devnull))
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
