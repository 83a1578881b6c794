"""MA301 to MA303: build files and code beside the manifests, read line by line; ``source_kinds`` says which."""
