"""MA117 and MA901 to MA904: problems of a document, of its file, or of an edit."""
