"""What the living process shows to be worth changing, one cause a file."""
