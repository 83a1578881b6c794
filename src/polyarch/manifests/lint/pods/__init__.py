"""MA108, MA110 to MA114 and MA116: spellings, preferences, tolerations, and images beside the ordinary ones."""
