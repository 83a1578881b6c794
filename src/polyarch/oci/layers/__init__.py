"""Inside an image's layers: which machine its program is built for (RG-048, RG-049)."""
