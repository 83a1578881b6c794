"""MA108, MA110 to MA114 and MA116: label spellings, preferences, tolerations, init containers and passed images."""
