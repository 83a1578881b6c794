"""Jobs of builds: their pods, what these mount and run, and what they say when they end."""
