"""How commands print: tables, documents, progress, logs."""
