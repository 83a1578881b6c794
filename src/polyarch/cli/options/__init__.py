"""Options that several commands share, and how help about them looks. Declarations: nothing here opens a connection."""
