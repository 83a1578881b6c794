"""Building an image index and pushing it (RG-150 to RG-157)."""
