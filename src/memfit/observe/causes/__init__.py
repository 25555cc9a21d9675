"""What a record shows to be worth changing, one cause a file. None needs TensorFlow."""
