"""The verdicts of the scheduler plugin ``NodeResourceTopologyMatch``, for careful migration and comparison (NS-003).

``fit`` (its Filter), ``scoring`` and ``least_nodes`` (its Score), ``cache`` (its pessimistic cache), ``evaluate``
(both in one decision). Where the plugin has a defect, what holds here is said in the module and tested as a difference.
Pure.
"""
