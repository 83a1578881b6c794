"""What a kubelet decides about CPUs, memory, devices and NUMA zones, as a model. Pure.

The nodes of a sandbox have it in place of a kubelet's CPU, memory, device and topology managers of Kubernetes 1.36, and
tests take it as the judge. So it follows the kubelet in everything that can be seen from outside, also where that is
surprising, and it shares no code with ``polyarch.numa``. Where Go leaves an order to chance, it takes the lowest id.
"""
