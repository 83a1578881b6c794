"""Authoring tools: find the platforms that a manifest admits and its images support, and make the two agree.

Text and image answers go in, findings and edits come out. Read in this order: ``scan`` (a file as marked YAML nodes,
the pod specifications in it, and the sets of platforms), ``rules``, ``operations`` (a fix as operations on the object),
``edit`` (the same operations as splices of the text) and ``fix`` (rounds of repairs, each verified). ``bundle`` reads
operator bundles. The whole package is pure: ``polyarch.cli`` reads files, resolves images and prints results.
"""
