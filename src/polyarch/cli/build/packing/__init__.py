"""``--context DIR``: a folder as an image that build pods fetch (BD-300)."""
