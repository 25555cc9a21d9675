"""A Keras model to a `Step`: the operations of one training, evaluation or prediction step."""
