"""Knowing images before pods need them: readings shared by all replicas, and those of workload templates."""
