"""MA001 to MA011: what is wrong with an image, wherever it stands; ``image_place`` is what each check is given."""
