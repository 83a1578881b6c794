"""Executions: what they cover, whose children and Jobs can be used again, and what becomes of them. Pure."""
