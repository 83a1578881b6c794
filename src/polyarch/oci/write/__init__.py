"""Building an image index and pushing it."""
