"""Containerfiles as text: refused where no builder takes them, and searched for the images that they name (BD-057)."""
