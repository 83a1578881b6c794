"""The controller of gated pods: one PATCH, or the reason why a pod waits."""
