"""The extender beside a stock kube-scheduler: it says which nodes hold a pod in their NUMA zones, and reserves them."""
