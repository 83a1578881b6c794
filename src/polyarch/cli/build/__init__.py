"""``polyarch build``: build one image for every architecture, see what would be built and why, and what is being built.

``build`` has the command lines. ``composition`` makes an ImageBuild of flags and files, ``packing`` packs a local
context; ``submission`` applies it, ``following`` watches it and ``board`` shows what ``observation`` makes of it.
``forecast``, ``overview`` and ``podlogs`` do the work of the other commands.
"""
