"""Training that carries a plan."""
