"""Rounds: what is done now under each decision. ``planner`` turns one into conditions, events and writes. Pure."""
