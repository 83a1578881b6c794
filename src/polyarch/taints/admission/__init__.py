"""The webhooks of taints: pods and templates of DaemonSets get their tolerations when they are created."""
