"""What is known already, in memory and on disk, and whom it may be told (RG-110 to RG-115)."""
