"""What an exporter follows and writes in the API server: its topology, its Node, its Pod, the pods that have ended."""
