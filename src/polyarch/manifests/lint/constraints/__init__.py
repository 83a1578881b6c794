"""MA101 to MA107, MA109 and MA115: what a pod admits against what its images support.

At most one of MA105, MA104, MA107, MA102 and MA101 is reported for a pod specification: ``precedence`` says which.
"""
