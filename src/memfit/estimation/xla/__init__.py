"""The peak of a step that XLA compiles (`jit_compile=True`, which is what Keras does on a GPU by default)."""
