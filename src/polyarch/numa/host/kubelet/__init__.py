"""What the kubelet keeps in files and tells of its configuration: checkpoints of its managers, and its settings."""
