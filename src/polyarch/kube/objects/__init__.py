"""What an operator does with objects: apply sets, conditions, finalizers, owners, rights, schemas (KR-051 – KR-054)."""
