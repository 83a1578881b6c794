"""When a scan is made: by a timer, and when the kubelet may have placed something (NE-054, NE-117 – NE-119)."""
