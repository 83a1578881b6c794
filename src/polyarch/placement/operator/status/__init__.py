"""What the status of our custom resources says."""
