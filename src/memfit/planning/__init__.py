"""Which techniques, in one piece of data: the Plan."""
