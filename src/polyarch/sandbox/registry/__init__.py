"""The sandbox's registry: the distribution registry behind our own proxy, which decides about access.

``distribution`` can only make all of a registry public or private. The ``proxy`` decides per repository, as hosted
registries do: an open repository can be read and written without a challenge; a private one requires a token from the
proxy's token endpoint (as on Docker Hub) or a password (as in many company registries). The proxy also writes the
access log, one JSON line per request. Changes of the access list need no restart.

``images`` builds small real images from descriptions, ``seed`` pushes them and maps public names to this registry.
"""
