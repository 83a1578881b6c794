"""What decisions rest on: the cluster's facts, pull secrets, and the platforms of images."""
