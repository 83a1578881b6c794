"""The programs of containers that are run: polyarch itself, the stock kube-scheduler, and what plays buildah (SB-011).

``arguments`` says how a pod's command line reads on this machine, ``installed``, ``kube_scheduler`` and ``buildah``
what is executed, and ``images`` which containers that is about. Pure.
"""
