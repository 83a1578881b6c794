"""What a child is made of, as a hash: effective inputs, keys, and the names made from them (BD-055 to BD-081)."""
