"""Fixes a file in rounds, each verified before it is kept. Pure."""
