"""The operator's processes: one module per role, which wires ``kube``, ``oci`` and its feature from the settings.

structlog imports rich and pygments if they are installed (cyclopts needs them), to print tracebacks on terminals. No
role uses that, and it costs 3 MiB in each process. So structlog is imported here first, with rich hidden from it.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that `import rich` raises ImportError
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
