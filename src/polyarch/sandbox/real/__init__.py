"""Real nodes: kubelet, containerd, runc and kube-proxy of each in namespaces of its own on this machine, as root.

The control plane and the registry are those of every sandbox, on loopback. Nodes and pods have addresses in network
namespaces that are joined by a bridge in one more namespace and by nothing else, so no packet can leave the machine.
The egress process (:mod:`polyarch.sandbox.egress`) copies connections between the two. Every process is in a cgroup of
the sandbox, and every mount, interface and rule in a namespace that ends with its last process: so ``down`` finds and
removes all of it, however ``up`` ended.
"""
