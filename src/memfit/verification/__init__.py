"""Proof that a planned step is the plain step, for the model at hand."""
