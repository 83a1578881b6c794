"""The programs that tests and benches compare polyarch with or run it under, in the versions that are pinned here.

``python -m tools.peers`` brings them, ``found`` says where each is, or why it is not there. Helm, kubectl, the
validator of operator-sdk and the matcher of ignore files are built once from one Go module (``gomodule/``) and cached
beside the sandbox's programs; pre-commit is part of the environment; skopeo, buildah and mmdebstrap are the system's
packages. None is part of the package that users install.
"""
