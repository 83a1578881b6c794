"""The extender beside a stock kube-scheduler: it answers which nodes hold a pod in their cells, and reserves them."""
