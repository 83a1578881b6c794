"""The images of a pod, and what registries say of them with its credentials: shared by the features that decide."""
