"""Jobs of builds: their pods, what they mount and run, and what they tell when they end."""
