"""Container registries as a library: on which platforms can this image run?

Start with ``inspector`` (one call for an image's platforms) and ``inspection`` (what it returns). Below: ``image``
reads manifests, ``auth`` authenticates, ``traffic`` limits and retries requests, ``transport`` sends them,
``pull_sources`` says where an image may come from, and ``write`` makes and pushes indexes.
"""
