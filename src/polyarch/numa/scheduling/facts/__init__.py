"""What decisions are made from, and what a decision is. Pure."""
