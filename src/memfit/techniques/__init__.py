"""What can be changed so that a step takes less: one file each."""
