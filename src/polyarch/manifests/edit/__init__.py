"""Turns operations on an object into splices of its text that change no other character. Pure."""
