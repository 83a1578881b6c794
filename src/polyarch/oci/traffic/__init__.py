"""Sends requests: queues, rate limits, retries, redirects, deadlines."""
