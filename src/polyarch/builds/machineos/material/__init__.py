"""What the Jobs of a machine OS build are given: a Containerfile, credentials, and files of the rendered config."""
