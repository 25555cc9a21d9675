"""The seam to Keras and TensorFlow internals: what is private there is used here and nowhere else."""
