"""Inside an image's layers: for which machine is the program that it starts? (RG-048, RG-049)"""
