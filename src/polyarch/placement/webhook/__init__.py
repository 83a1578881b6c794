"""The pod webhook: placed at admission where everything is known, gated where it is not."""
