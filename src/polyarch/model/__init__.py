"""Wire types of the Kubernetes objects that polyarch reads.

Slim and frozen: only the fields that some rule looks at are declared, the rest is skipped by the decoder. A value of
these types is therefore never sent back as an object (see ``polyarch.kube.client``): writes are patches that we build.
No I/O, no clock, nothing of any feature.
"""
