"""What runs where, what could run elsewhere, and what is in the way: facts in, one report out."""
