"""Authoring tools: what a manifest admits, what its images support, and the edit that makes the two agree.

Text and answers in, findings and edits out. Read in this order: ``text`` and ``nodes`` (a file as marked YAML nodes),
``scan`` (the pod specifications in it), ``sets`` and ``lint`` (what is wrong with them), ``tree`` (a repair as
operations on the object) and ``editor`` (the same operations as splices of the text). Everything here is pure: files
are read, images are resolved and results are printed by ``polyarch.cli``.
"""
