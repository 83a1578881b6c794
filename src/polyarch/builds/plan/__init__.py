"""What is to be done about one build, and why, as one value. Pure."""
