"""Smaller architectures: models rebuilt with cheaper convolutions or fewer filters, and what that is worth."""
