"""What would become of pods on nodes as they are now: for people who ask before they do (NS-160 – NS-162). Pure."""
