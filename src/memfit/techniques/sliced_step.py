"""A step of training or evaluating whose batch is worked through in slices.

Each slice's loss is its part of the whole batch's loss (`whole_batch_loss`), each slice draws its rows of the random
numbers the whole batch would draw (`whole_batch_random`), so that the gradients add up to the batch's own.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import repeat
from typing import Any

from memfit.framework import keras, tensorflow
from memfit.techniques.batch_statistics import BatchStatistics
from memfit.techniques.slices import Slices, Work
from memfit.techniques.whole_batch_loss import TotalsNeeded, whole_batch_loss
from memfit.techniques.whole_batch_random import whole_batch_random


class SlicedStep:
    """One traced step of training, or of evaluating.

    Args:
        model: A built, compiled Keras model.
        size: Samples to a slice.
        training: Whether it is `train_step` or `test_step`.
    """

    def __init__(self, model: Any, size: int, *, training: bool = True) -> None:
        self.model, self.size, self.training = model, size, training
        self.trainable = model.trainable_weights
        self.statistics = BatchStatistics(model)
        self.all_state = model.non_trainable_variables
        averaged = [each for each in self.all_state if id(each) not in self.statistics.variables]
        self.state = averaged if training else []

    def run(self, data: Any) -> Any:
        """What Keras's step does, for `data` in slices."""
        tf, model = tensorflow(), self.model
        self.batch = keras().utils.unpack_x_y_sample_weight(data)
        self.slices = Slices(self.batch, self.size, jit=bool(model.jit_compile))
        self.before = [tf.convert_to_tensor(each.value) for each in self.all_state]
        self._build()
        counts = _samplewise(model) and model._compile_metrics is not None
        self.metrics = model._compile_metrics.variables if counts else []
        self.metrics_before = [tf.convert_to_tensor(each.value) for each in self.metrics]
        try:
            found = self.slices.run(self._work(None))
        except TotalsNeeded:
            # What a loss is divided by depends on the data: sum that first. TensorFlow prunes everything else.
            divisors = self.slices.run(self._divisors)["sum"]
            found = self.slices.run(self._work(divisors))
        self._finish(found["sum"], found["latest"], found["rows"]["gradients"])
        if _samplewise(model):
            return model.get_metrics_result()
        x, y, sample_weight = self.batch
        return model.compute_metrics(x, y, found["rows"]["predictions"], sample_weight=sample_weight)

    def _build(self) -> None:
        """Create metrics and losses now: inside a loop no variable can be created."""
        parts = (self.model._compile_loss, self.model._compile_metrics)
        if not all(part is None or part.built for part in parts):
            self.model._symbolic_build(data_batch=self.batch)

    def _divisors(self, batch: Any, share: Any, start: Any) -> dict[str, Any]:
        with ExitStack() as stack:
            stack.enter_context(self._random(start))
            stack.enter_context(self._as_the_batch_began())
            parts = stack.enter_context(whole_batch_loss(self.model, share, only_divisors=True))
            self._forward(batch)
        return {"sum": parts.divisors, "latest": (), "rows": ()}

    def _work(self, divisors: Sequence[Any] | None) -> Work:
        return lambda batch, share, start: self._slice(batch, share, start, divisors)

    def _slice(self, batch: Any, share: Any, start: Any, divisors: Sequence[Any] | None) -> dict[str, Any]:
        """Forward and backward for one slice; nothing of the model changes."""
        tf, model = tensorflow(), self.model
        # The gradient is inside too: it may draw again what it recomputes.
        with self._random(start):
            with tf.GradientTape() as tape, ExitStack() as stack:
                scope = stack.enter_context(self._as_the_batch_began())
                moments = stack.enter_context(self.statistics.recorded())
                with whole_batch_loss(model, share, divisors) as parts:
                    predictions, loss = self._forward(batch)
                scaled = model.optimizer.scale_loss(loss) if self.training else loss
                state = [scope.get_current_value(each) for each in self.state]
            sources = [each.value for each in self.trainable]
            gradients = tape.gradient(scaled, sources) if self.training else [None] * len(sources)
        self.kinds = [_kind(each) for each in gradients]
        for kind, gradient, variable in zip(self.kinds, gradients, self.trainable, strict=True):
            if kind == "dense":
                gradient.set_shape(variable.shape)  # not all gradients know theirs
        return {
            "sum": {
                "loss": loss,
                "metrics": self._counted(batch, predictions),
                "losses": parts.values,
                "gradients": [each for each in gradients if _kind(each) == "dense"],
                "moments": self.statistics.weighted(moments, share),
                "state": [each * tf.cast(share, each.dtype) for each in state if each.dtype.is_floating],
            },
            "latest": [each for each in state if not each.dtype.is_floating],
            "rows": {
                "predictions": () if _samplewise(model) else predictions,
                "gradients": [_by_sample(each, batch) for each in gradients if _kind(each) == "sparse"],
            },
        }

    def _counted(self, batch: Any, predictions: Any) -> list[Any]:
        """What a slice adds to the metrics."""
        if not self.metrics:
            return []
        _, y, sample_weight = batch
        with keras().StatelessScope([*zip(self.metrics, self.metrics_before, strict=True)]) as scope:
            self.model._compile_metrics.update_state(y, predictions, sample_weight)
            found = [scope.get_current_value(each) for each in self.metrics]
        return [after - before for after, before in zip(found, self.metrics_before, strict=True)]

    def _forward(self, batch: Any) -> tuple[Any, Any]:
        model = self.model
        x, y, sample_weight = batch
        predictions = model(x, training=self.training) if model._call_has_training_arg else model(x)
        loss = model._compute_loss(x=x, y=y, y_pred=predictions, sample_weight=sample_weight, training=self.training)
        return predictions, loss

    def _random(self, start: Any) -> AbstractContextManager[None]:
        return whole_batch_random(self.slices.count, start, self.size, jit=bool(self.model.jit_compile))

    def _as_the_batch_began(self) -> Any:
        """Every slice finds the seeds and statistics the batch found; what it makes of them is kept apart."""
        state = [*zip(self.all_state, self.before, strict=True)]
        # Keras takes what it regularises from the scope alone.
        state += [(each, tensorflow().convert_to_tensor(each.value)) for each in self.trainable]
        return keras().StatelessScope(state, collect_losses=True)

    def _finish(self, total: dict[str, Any], latest: list[Any], sparse: list[Any]) -> None:
        """One loss, one optimizer step, one update of all other state."""
        model = self.model
        model._loss_tracker.update_state(total["loss"], sample_weight=self.slices.count)
        trackers = model._compile_loss.metrics if model._compile_loss is not None else ()
        for metric, value in zip(trackers, total["losses"], strict=False):
            metric.update_state(value, sample_weight=self.slices.known_count)
        for variable, before, counted in zip(self.metrics, self.metrics_before, total["metrics"], strict=True):
            variable.assign(before + counted)
        averaged, newest = iter(total["state"]), iter(latest)
        for variable in self.state:
            floating = tensorflow().as_dtype(variable.dtype).is_floating
            variable.assign(next(averaged) if floating else next(newest))
        self.statistics.update(total["moments"])
        if not self.trainable or not self.training:
            return
        sources = {"dense": iter(total["gradients"]), "sparse": iter(sparse), "none": repeat(None)}
        gradients = []
        for kind, variable in zip(self.kinds, self.trainable, strict=True):
            gradient = next(sources[kind])
            gradients.append(_rows_of(variable, *gradient) if kind == "sparse" else gradient)
        model.optimizer.apply_gradients(zip(gradients, self.trainable, strict=True))


def _kind(gradient: Any) -> str:
    """How a gradient comes: an embedding's as rows, which stay rows: Keras's optimizers treat them differently."""
    if gradient is None:
        return "none"
    return "sparse" if isinstance(gradient, tensorflow().IndexedSlices) else "dense"


def _by_sample(gradient: Any, batch: Any) -> tuple[Any, Any]:
    """Rows of a variable with samples along their first dimension."""
    tf = tensorflow()
    samples = tf.shape(next(each for each in tf.nest.flatten(batch) if each is not None))[0]
    values = tf.reshape(gradient.values, [samples, -1, *gradient.values.shape[1:]])
    return values, tf.reshape(gradient.indices, [samples, -1])


def _rows_of(variable: Any, values: Any, indices: Any) -> Any:
    tf = tensorflow()
    return tf.IndexedSlices(tf.reshape(values, [-1, *variable.shape[1:]]), tf.reshape(indices, [-1]), variable.shape)


def _samplewise(model: Any) -> bool:
    """Whether metrics may be updated slice by slice: Keras's own add up over samples; others may not."""
    if type(model).compute_metrics is not keras().Model.compute_metrics:
        return False
    metrics = model._compile_metrics.metrics if model._compile_metrics is not None else []
    owners = [type(each) for each in metrics] + [each._fn for each in metrics if hasattr(each, "_fn")]
    return all(each.__module__.startswith("keras.") for each in owners)
