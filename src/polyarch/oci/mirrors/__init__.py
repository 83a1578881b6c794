"""Mirrors and rewritten names, as configured for container tools."""
