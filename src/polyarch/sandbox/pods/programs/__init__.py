"""The programs of containers that are run: polyarch itself, and the stock kube-scheduler (SB-011).

``arguments`` says how a pod's command line reads on this machine, ``installed`` and ``kube_scheduler`` what is
executed, and ``images`` which containers that is about. Pure.
"""
