"""A step in two parts: the first computes everything and changes nothing, the second writes what came out.

The first one takes the memory. When it runs out, the model is as it was, and the same batch can be tried again; under
XLA, where running out inside a function that updates variables ends the process (their buffers were given away), too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memfit.framework import keras, tensorflow

Step = Callable[[Any], Any]


class Transaction:
    """A train or test step of a model, traced where it stands: with what is applied to the model at its first call.

    Args:
        model: A built, compiled Keras model.
        step: Its `train_step` or `test_step`.
    """

    def __init__(self, model: Any, step: Step) -> None:
        self._model, self._step = model, step
        self._trainable = model.trainable_variables
        self._written: list[Any] = []
        self._compute, self._write = self._computed, self._write_back
        self._whole: Step = self._computed_and_written
        self._done = 0
        tf = tensorflow()
        with tf.device("CPU"):
            self._begun = tf.Variable(0, dtype="int64", trainable=False)
        if not model.run_eagerly:
            compiled = {"reduce_retracing": True, "jit_compile": model.jit_compile, "autograph": False}
            self._compute, self._write = (tf.function(each, **compiled) for each in (self._computed, self._write_back))
            # One function around them: each that is called from Python takes time for every tensor it is given.
            self._whole = tf.function(self._computed_and_written, reduce_retracing=True, autograph=False)

    def __call__(self, data: Any) -> Any:
        """Run the step on a batch; what Keras's step returns."""
        logs = self._whole(data)
        self._done += 1
        return logs

    @property
    def half_written(self) -> bool:
        """Whether a call failed that had begun to write: the model is neither as it was nor as it should be."""
        return int(self._begun) != self._done

    def _computed_and_written(self, data: Any) -> Any:
        tf = tensorflow()
        computed = self._compute(data)
        # Nothing is written before everything is computed: one operation waits for all of it.
        flat = tf.nest.flatten(computed, expand_composites=True)
        there = [at for at, each in enumerate(flat) if tf.is_tensor(each)]
        for at, each in zip(there, tf.identity_n([flat[at] for at in there]), strict=True):
            flat[at] = each
        logs, gradients, values = tf.nest.pack_sequence_as(computed, flat, expand_composites=True)
        with tf.control_dependencies([flat[at] for at in there]):
            begun = self._begun.assign_add(1)
        with tf.control_dependencies([begun]):
            self._write(gradients, values)
        return logs

    def _computed(self, data: Any) -> tuple[Any, Any, dict[str, Any]]:
        """The step's logs, gradients and new values of all other variables, none of them written."""
        tf, model = tensorflow(), self._model
        others = [*model.non_trainable_variables, *model.metrics_variables]
        state = [(each, tf.convert_to_tensor(each.value)) for each in others]
        gradients: list[Any] = []
        with keras().StatelessScope(state, collect_losses=True) as scope, _held_back(model.optimizer, gradients):
            # Keras takes what it regularises from the scope alone, and gradients want the variable itself.
            scope.state_mapping |= {id(each): each._value for each in self._trainable}
            logs = self._step(data)
            after = [scope.get_current_value(each) for each in others]
        changed = [
            (variable, value)
            for variable, (_, before), value in zip(others, state, after, strict=True)
            if value is not before
        ]
        self._written = [variable for variable, _ in changed]
        return logs, gradients, {str(at): value for at, (_, value) in enumerate(changed)}

    def _write_back(self, gradients: Any, values: dict[str, Any]) -> None:
        for at, variable in enumerate(self._written):
            variable.assign(values[str(at)])
        if gradients:
            self._model.optimizer.apply_gradients(zip(gradients, self._trainable, strict=True))


@contextmanager
def _held_back(optimizer: Any, gradients: list[Any]) -> Iterator[None]:
    """Keep an optimizer from using gradients; collect them instead."""
    if optimizer is None:
        yield
        return
    optimizer.apply_gradients = lambda pairs, **_: gradients.extend(each for each, _ in pairs)
    try:
        yield
    finally:
        del optimizer.apply_gradients
