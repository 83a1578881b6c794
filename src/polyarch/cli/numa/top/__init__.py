"""``polyarch numa top``: what every cell has and has left (NS-160)."""
