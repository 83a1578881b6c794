"""Registry client: on which platforms can this image run?

It knows nothing of Kubernetes. This file imports nothing on purpose: ``reference``, ``mirrors``, ``answer``,
``documents`` and the challenge parser must load without a network stack.
"""
