"""What runs in build pods beside buildah: pushing a child, an index, deleting images (BD-148, BD-149, BD-178)."""
