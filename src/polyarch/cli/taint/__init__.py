"""``polyarch taint``: plan, bootstrap, apply and clean the taints of a cluster."""
