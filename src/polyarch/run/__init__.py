"""One module per process of the operator: reads its settings, wires ``kube``, ``oci`` and the features, runs.

structlog imports rich and pygments wherever they are installed (cyclopts brings them), to print tracebacks on
terminals. That is 3 MiB in each process, and no role uses it. So structlog is imported here, before the modules of a
role import it, with rich hidden from it.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # so that `import rich` raises ImportError
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
