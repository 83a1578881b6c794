"""What a plan has done for it: questions answered, objects written, registries written to (BD-001, BD-196).

Each effect is small, may be repeated, and may be cut off anywhere. None decides anything.
"""
