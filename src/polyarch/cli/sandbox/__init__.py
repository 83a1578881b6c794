"""The sandbox: ``up``, ``down``, ``status`` and ``sandbox``."""
