"""Objects of builds as pure functions: what the operator applies while the role builder is wanted."""
