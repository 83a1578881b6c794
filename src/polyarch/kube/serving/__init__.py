"""HTTP servers of a process: admission, conversion, probes, metrics, and their certificates (KR-032, KR-033)."""
