"""One process put together from its parts, started and stopped in order (KR-034)."""
