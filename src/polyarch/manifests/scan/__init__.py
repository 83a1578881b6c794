"""Parses a text for the rules: marked nodes, objects, pod specifications and their images. Pure."""
