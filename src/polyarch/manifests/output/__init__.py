"""Output formats: each module has one ``render`` from a ``Report`` to a text.

Pure: no format knows files or terminals. A module is imported when its format is requested.
"""
