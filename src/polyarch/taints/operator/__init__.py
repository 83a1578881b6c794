"""The objects that the operator makes for taints, as documents. Everything here is pure."""
