"""MA001 to MA011: problems of an image, in a pod or in a bundle's list. ``image_place`` is the input of each check."""
