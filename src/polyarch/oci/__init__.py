"""Registries as a library: on which platforms can this image run?

It knows nothing of Kubernetes. This package file imports nothing on purpose: ``reference``, ``mirrors``, ``answers``,
``inspection`` and the challenge parser must load without a network stack (RG-001).
"""
