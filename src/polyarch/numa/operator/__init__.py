"""What the NUMA operator makes, as pure functions: objects as read in, documents, status and conditions out."""
