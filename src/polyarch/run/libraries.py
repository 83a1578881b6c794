"""Libraries as roles need them. Two load on import what no role uses: import this before them, and it imports them
without that.

* structlog imports rich and pygments if they are installed (cyclopts needs them), to print tracebacks on terminals:
  3 MiB in each process.
* aiohttp makes TLS contexts with the system's CAs for requests that bring none: 2 MiB. Every client of ours brings its
  own, which loads the system's CAs if its settings say so.
* asyncio reads a TLS connection into 256 KiB of its own. An operator has one for each watch, 40 of them, and a record
  of TLS is at most 16 KiB.
"""

import os
import sys
from asyncio import sslproto
from typing import Final

_AUTHORITIES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where OpenSSL looks for the system's CAs."""
TLS_BUFFER: Final = 16 << 10
"""Bytes."""

sslproto.SSLProtocol.max_size = TLS_BUFFER

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that `import rich` raises ImportError
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]

if "aiohttp" not in sys.modules:
    _known = {name: os.environ.get(name) for name in _AUTHORITIES}
    os.environ.update(dict.fromkeys(_AUTHORITIES, os.devnull))
    try:
        import aiohttp  # noqa: F401
    finally:
        for _name, _value in _known.items():
            if _value is None:
                del os.environ[_name]
            else:
                os.environ[_name] = _value
