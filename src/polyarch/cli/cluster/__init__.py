"""``polyarch run``, and the sandbox's ``up``, ``down``, ``status`` and ``sandbox``."""
