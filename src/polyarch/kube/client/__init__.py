"""Requests to the API server: verbs, patches, answers and retries, typed (KR-002 to KR-004)."""
