"""Image look-ups for pods: cached answers, pull secrets, shared attempts with retries, fair queueing by namespace."""
