"""The API server's way to Services and pods (SB-012): ``python -m polyarch.sandbox.egress FOLDER``.

The API server never connects into the cluster itself: its egress selector sends every such connection to the unix
socket of this process. ``routing`` decides where it leads, ``proxy`` answers and copies, ``service`` starts it.
"""
