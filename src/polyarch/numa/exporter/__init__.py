"""The daemon of each node: scans when something may have changed, and writes only what did."""
