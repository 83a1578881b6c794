"""The builder: gathers facts from caches, has them planned, and carries out what the plan says.

``watches`` and ``own_builds`` turn the cluster into facts, ``passes`` asks for a plan and hands its questions and its
writes to the effects. Nothing here decides.
"""
