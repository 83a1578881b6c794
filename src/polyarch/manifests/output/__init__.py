"""The forms in which a run is printed: each module has one ``render`` from a ``Report`` to a text (MF-042 – MF-045).

Pure: no format knows of files or terminals. Modules are imported by name when a format is asked for.
"""
