"""The decision about one pod, from its facts and its images' platforms. Pure."""
