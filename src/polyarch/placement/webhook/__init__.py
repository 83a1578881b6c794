"""The pod webhook: places a pod at admission if its images are known, else adds the scheduling gate."""
