"""MA101 to MA107, MA109 and MA115: the platforms that a pod admits, compared with those that its images support.

A pod specification gets at most one of MA105, MA104, MA107, MA102 and MA101; ``precedence`` says which.
"""
