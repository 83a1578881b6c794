"""What a release needs beside ``make dist`` and ``make image``: krew's archives and manifest, and the notes.

``.github/workflows/release.yml`` calls the targets of the Makefile that run these. None publishes anything: whoever
runs them on a clone gets in ``dist/`` what the release of this commit has, to the byte.
"""
