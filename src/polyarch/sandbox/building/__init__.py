"""What plays buildah in the build pods of a sandbox: ``python -m polyarch.sandbox.building`` (BD-391).

A container of the builder image is run like one of polyarch's own: it reads the inputs of its Job, prints the steps of
the Containerfile, and writes a small real image of the pod's architecture as an OCI layout, all as the contract of
build pods says (``polyarch.builds.jobs.contract``). No line of a Containerfile and no script is executed.

``mishaps`` (pure) is what a build is asked to do wrong, ``script`` (pure) the course of one build, ``product`` the
image and its layout.
"""
