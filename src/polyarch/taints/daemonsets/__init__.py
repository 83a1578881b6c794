"""Templates of DaemonSets that exist: they get their tolerations, a few rollouts at a time (TN-050 to TN-052)."""
