"""``polyarch lint`` and ``polyarch fix``: from a command line to findings, repaired files and an exit code."""
