"""The sandbox's registry (SB-005): the distribution registry for content, and a front of ours for who may have it.

``distribution`` knows public or private only for a whole process. The ``front`` decides per repository, as the hosted
registries do: an open repository is read and written by anybody, without a challenge; a private one wants a token from
the front's own token endpoint (as Docker Hub) or a password (as many a company's registry). It also writes the access
log, one JSON line per request. Changes of the access list need no restart.

``images`` builds real small images in memory, ``catalogue`` reads descriptions of them, ``seed`` pushes them,
``mirrors`` writes the registries.conf that maps public names here.
"""
