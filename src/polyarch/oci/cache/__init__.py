"""Cache of image readings, in memory and on disk, with proof of who may use each one (RG-110 to RG-115)."""
