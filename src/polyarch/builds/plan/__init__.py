"""What is to be done about one build, and why, as one value. Pure.

``planner`` asks ``request`` what is wanted, ``choice`` which execution is right for it, ``actions`` what happens
with each architecture, ``update`` what becomes of the execution, and ``writes`` in which order that is written.
What differs between ImageBuild and MachineOSConfig is a ``BuildKind``.
"""
