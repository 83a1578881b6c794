"""MA117 and MA901 to MA904: what is wrong with a document, with its file, or with what was done to it."""
