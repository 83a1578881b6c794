"""The builder: gathers facts from caches, has them planned, and carries out what the plan says. Nothing here decides.

``informers``, ``image_builds`` and ``machine_os`` turn the cluster into facts; ``reconciler`` asks for a plan,
``resolver`` does its lookups, ``writes`` carries out its writes, and ``pruner`` deletes old Runs and images.
"""
