"""The rules: what is wrong with a manifest, where, and what would repair it (MF-020).

A rule is one module, named by its id: ``images/ma001_unresolved``. It has the ``RULE``, which says to people what it is
about, and the ``check``. ``catalogue`` lists them, ``engine`` runs them over a file, ``build_files`` and ``bundle_run``
over other things. Read ``facts`` first: it is what rules are given and what they give back.
"""
