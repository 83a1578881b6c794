"""The rules: what is wrong with a manifest, where, and how to repair it (MF-020).

A rule is one module named by its id, such as ``images/ma001_unresolved``: ``RULE`` describes it, ``check`` finds it.
``catalogue`` lists the rules; ``engine`` runs them over a manifest, ``build_files`` over build files and code,
``bundle_run`` over bundles and catalogs. Read ``facts`` first: it defines what rules take and return.
"""
