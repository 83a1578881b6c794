"""Where an exporter's settings come from: defaults, files, the environment and the command line (NE-130 – NE-135).

``reading`` is the way in. ``settings_table`` says what there is to set, ``flags`` how it is spelt on the command line.
"""
