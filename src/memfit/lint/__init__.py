"""Memory mistakes in training scripts, found in the source. Needs no TensorFlow and runs nothing."""
