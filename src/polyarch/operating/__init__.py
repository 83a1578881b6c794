"""What an operator of ours deploys, and how: the part that placement and taints have in common.

Objects come from pure functions; ``keeping`` holds them in the cluster. Features are above this package, and it knows
them only by the names of their Deployments (``names``).
"""
