"""``polyarch report``: what runs where, what could run elsewhere, and what is in the way."""
