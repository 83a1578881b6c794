"""``polyarch numa …`` and the processes of NUMA: what they are told, and what they print."""
