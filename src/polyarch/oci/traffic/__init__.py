"""One request through everything that can happen to it: pauses, rate limits, redirects, deadlines."""
