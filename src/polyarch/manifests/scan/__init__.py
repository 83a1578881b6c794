"""A text as the rules see it: marked nodes, objects, pod specifications and their images. Pure."""
