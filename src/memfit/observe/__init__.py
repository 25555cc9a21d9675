"""What happened in a run: the record, and what writes it."""
