"""The rules: what is wrong with a manifest, where, and what would repair it (MF-020).

``catalogue`` (one package up) is the list of the rules; a module here holds a family of them. ``engine`` runs them over
a file. Read ``facts`` first: it is what rules are given and what they give back.
"""
