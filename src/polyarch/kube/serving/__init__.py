"""What a process answers over HTTP: admission, probes and metrics, and the certificates for it."""
