"""What the kubelet handed out and what it may hand out, asked of its podresources API (NE-050 – NE-057).

``opening`` chooses by URL; ``client`` is what callers see. ``grpclib`` and the generated messages of ``v1`` are
imported by the rest alone, when a URL needs them.
"""
