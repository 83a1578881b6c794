"""The rules of taints and tolerations: facts in, decisions out."""
