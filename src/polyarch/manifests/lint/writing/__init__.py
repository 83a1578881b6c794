"""What repairs write: required node affinity, what stands in place of something, and what several users share."""
