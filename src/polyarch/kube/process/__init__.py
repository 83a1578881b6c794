"""Roles, and the manager that runs their components in one process (KR-034, KR-050)."""
