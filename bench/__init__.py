"""Benchmarks: what polyarch costs, in CPU time, requests, bytes and memory.

``make bench`` runs them all; ``python -m bench NAME…`` some; ``--record`` writes the figures that later runs are
compared with. CPU time and counts are compared (a regress of 20 % fails, PL-812), wall time never: machines are
shared, so each latency stands beside a control run of the same minute.
"""
