"""The kubelet's podresources API v1: ``api.proto`` is upstream's, ``make generate`` writes the rest from it."""
