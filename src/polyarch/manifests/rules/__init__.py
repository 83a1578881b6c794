"""The rules: what is wrong with a manifest, where, and how to repair it.

A rule is a constant named by its id, such as ``MA001`` in ``images``, with a function that checks it. Each module of
rules ends with the list of its own; ``catalogue`` joins the lists. ``engine`` runs the rules over a manifest or a build
file, ``bundle_run`` over bundles and catalogs. Read ``facts`` first: it defines what rules take and return. Pure.
"""
