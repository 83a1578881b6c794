"""What the operator's leader does about builds: deploys the role builder while it is wanted, and removes it."""
