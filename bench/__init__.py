"""Benchmarks of polyarch: CPU time, requests, bytes and memory.

``make bench`` runs all of them, ``python -m bench NAME…`` some; ``--record`` stores the figures to compare later runs
with. CPU time and counts are compared (a regression of 20 % fails, PL-812). Wall time is not, because machines are
shared; each latency is shown with that of a control run in the same minute.
"""
