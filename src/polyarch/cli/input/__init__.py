"""What commands read: files and standard input, YAML, Kubernetes objects, bundles, answers for images."""
