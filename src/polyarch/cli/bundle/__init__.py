"""``polyarch bundle validate``, and the same judgement as a validator of operator-sdk's."""
