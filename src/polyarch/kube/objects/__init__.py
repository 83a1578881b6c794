"""Blocks for operators: apply sets, conditions, finalizers, owner references, RBAC, schemas (KR-051 – KR-054)."""
