"""Types of the Kubernetes objects that polyarch reads.

They are frozen and declare only the fields that some rule reads; the decoder skips the rest. A value of these types is
therefore never sent back as an object: writes are patches (see ``polyarch.kube.client``). No I/O, no clock, nothing
that belongs to one feature.
"""
