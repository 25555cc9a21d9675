"""A step of training or evaluating whose batch is worked through in slices.

Each slice draws its rows of the random numbers the whole batch would draw (`whole_batch_random`) and finds the state
the batch found (`batch_state`). Where the loss of the batch is a sum over samples, each slice computes its part of it
(`whole_batch_loss`) and the gradients add up. Where it is not (`mixed_samples`), the step takes two passes: the slices
run forward for their outputs alone; the loss of the whole batch gives the gradient of the outputs; the slices run again
and backpropagate their rows of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from memfit.compat.graph_order import operation_count
from memfit.compat.scope import state_scope
from memfit.framework import keras, tensorflow
from memfit.techniques.added_losses import Kind, added_losses, kinds
from memfit.techniques.batch_state import BatchState
from memfit.techniques.batch_statistics import BatchStatistics
from memfit.techniques.global_seed import global_seed_ready
from memfit.techniques.gradient_order import weights_before_inputs
from memfit.techniques.instance import replaced
from memfit.techniques.mixed_samples import adds_up, mixes_samples
from memfit.techniques.outputs import SlicedOutputs
from memfit.techniques.sliced_gradients import SlicedGradients, added
from memfit.techniques.slices import Slices, Work
from memfit.techniques.whole_batch_loss import NotInParts, TotalsNeeded, whole_batch_loss
from memfit.techniques.whole_batch_random import Rows, whole_batch_random


class SlicedStep:
    """One traced step of training, or of evaluating.

    Args:
        model: A built, compiled Keras model.
        size: Samples to a slice.
        training: Whether it is `train_step` or `test_step`.
    """

    def __init__(self, model: Any, size: int, *, training: bool = True) -> None:
        self.model, self.size, self.training = model, size, training
        self.passes: int | None = None
        """How often each slice runs forward; known after `run`."""
        self.trainable = model.trainable_weights
        self.gradients = SlicedGradients(self.trainable)
        self.outputs = SlicedOutputs(model)
        self.statistics = BatchStatistics(model)
        self.added: list[Kind] | None = None
        self.samplewise: bool | None = None

    def run(self, data: Any) -> Any:
        """What Keras's step does, for `data` in slices."""
        with global_seed_ready():
            return self._run(data)

    def _run(self, data: Any) -> Any:
        model = self.model
        self.batch = keras().utils.unpack_x_y_sample_weight(data)
        self.slices = Slices(self.batch, self.size, jit=bool(model.jit_compile))
        self._build()
        trackers = model._compile_loss.variables if model._compile_loss is not None else []
        self.state = BatchState(model, {*self.statistics.variables, *map(id, trackers)})
        self.metrics = model._compile_metrics.variables if model._compile_metrics is not None else []
        if own(model, "compute_loss"):
            return self._in_two_passes()
        try:
            found = self.slices.run(self._part(None))
        except TotalsNeeded:
            # What a loss is divided by depends on the data: sum that first. TensorFlow prunes everything else.
            divisors = self.slices.run(self._divisors)["sum"]
            found = self.slices.run(self._part(divisors))
        except NotInParts:
            return self._in_two_passes()
        self.passes = 1
        return self._finish(found)

    def _build(self) -> None:
        """Create metrics and losses now: inside a loop no variable can be created."""
        parts = (self.model._compile_loss, self.model._compile_metrics)
        if not all(part is None or part.built for part in parts):
            self.model._symbolic_build(data_batch=self.batch)

    # One pass.

    def _divisors(self, batch: Any, share: Any, start: Any) -> dict[str, Any]:
        with ExitStack() as stack:
            stack.enter_context(self._random(batch, start))
            stack.enter_context(self.state.as_the_batch_began())
            parts = stack.enter_context(whole_batch_loss(self.model, share, only_divisors=True))
            self._loss(batch, self._forward(batch))
        return {"sum": parts.divisors, "latest": (), "rows": (), "pieces": ()}

    def _part(self, divisors: Sequence[Any] | None) -> Work:
        return lambda batch, share, start: self._slice(batch, share, start, divisors)

    def _slice(self, batch: Any, share: Any, start: Any, divisors: Sequence[Any] | None) -> dict[str, Any]:
        """Forward and backward for one slice; nothing of the model changes."""
        tf, model = tensorflow(), self.model
        # The gradient is inside too: it may draw again what it recomputes.
        with self._random(batch, start):
            with tf.GradientTape() as tape, ExitStack() as stack:
                scope = stack.enter_context(self.state.as_the_batch_began())
                moments = stack.enter_context(self.statistics.recorded())
                predictions = self._forward(batch)
                self._decide(batch, predictions)
                with whole_batch_loss(model, share, divisors, added_weight=self._weight(share)) as parts:
                    loss = self._loss(batch, predictions)
                scaled = self._scaled(loss)
            gradients = self._gradients(tape, scaled)
        found = self.gradients.of_slice(gradients, batch, self.slices.rehearsal)
        state = self.state.of_slice(scope, share)
        return {
            "sum": {
                "loss": loss,
                "losses": parts.values,
                "metrics": self._counted(batch, predictions),
                "moments": self.statistics.weighted(moments, share),
                "gradients": found["sum"],
                "state": state["sum"],
            },
            "latest": {"gradients": found["latest"], "state": state["latest"]},
            "rows": () if self.samplewise else self.outputs.of_slice(predictions),
            "pieces": found["pieces"],
        }

    def _decide(self, batch: Any, predictions: Any) -> None:
        """Find out once how the parts of slices come together.

        Raises:
            NotInParts: If the loss must be computed on the whole batch.
        """
        model, (x, y, sample_weight) = self.model, batch
        if self.samplewise is None:
            if mixes_samples(model, y, predictions, sample_weight):
                raise NotInParts
            self.samplewise = _counts_samples(model) and adds_up(model, y, predictions, sample_weight)
        self._decide_added(x)

    def _decide_added(self, x: Any) -> None:
        if self.added is None and (count := len(added_losses(self.model))):
            found = kinds(self.model, x, training=self.training)
            self.added = found if found is not None and len(found) == count else ["mean"] * count

    def _weight(self, share: Any) -> Any:
        """How much of a slice's n-th added loss belongs to the batch's."""
        found = self.added or []
        return lambda position: 1.0 if position < len(found) and found[position] == "sum" else share

    def _counted(self, batch: Any, predictions: Any) -> list[Any]:
        """What a slice adds to the metrics."""
        if not self.metrics or not self.samplewise:
            return []
        tf, (_, y, sample_weight) = tensorflow(), batch
        zeros = [(each, tf.zeros(each.shape, each.dtype)) for each in self.metrics]
        with keras().StatelessScope(zeros) as scope:
            self.model._compile_metrics.update_state(y, predictions, sample_weight)
            return [scope.get_current_value(each) for each in self.metrics]

    def _finish(self, found: dict[str, Any]) -> Any:
        """One loss, one optimizer step, one update of all other state."""
        model, total, latest = self.model, found["sum"], found["latest"]
        model._loss_tracker.update_state(total["loss"], sample_weight=self.slices.count)
        trackers = model._compile_loss.metrics if model._compile_loss is not None else ()
        for metric, value in zip(trackers, total["losses"], strict=False):
            metric.update_state(value, sample_weight=self.slices.known_count)
        for variable, counted in zip(self.metrics, total["metrics"], strict=False):
            variable.assign_add(counted)
        for variable, value in self._state_after(found):
            variable.assign(value)
        self.statistics.update(total["moments"])
        pieces = {"sum": total["gradients"], "latest": latest["gradients"], "pieces": found["pieces"]}
        self._apply(self.gradients.of_batch(pieces))
        if self.samplewise:
            return model.get_metrics_result()
        return self._compute_metrics(self.outputs.of_batch(found["rows"]))

    # Two passes.

    def _in_two_passes(self) -> Any:
        tf, model = tensorflow(), self.model
        self.passes = 2
        first = self.slices.run(self._output)
        predictions = self.outputs.of_batch(first["rows"])
        # As a call of the model does: what an earlier call added is none of this step's.
        model._clear_losses()
        flat = [each for each in keras().tree.flatten(predictions) if each.dtype.is_floating]
        extra = first["sum"]["added"]
        with tf.GradientTape() as tape, ExitStack() as stack:
            tape.watch([*flat, *extra])
            # The loss finds the state as the forward pass left it; the second pass needs it as the batch found it.
            scope = stack.enter_context(self._after(first))
            losses = [*extra, *model._get_regularization_losses()]
            with replaced(model, "_losses_override", losses):
                loss = self._loss(self.batch, predictions)
            model._loss_tracker.update_state(loss, sample_weight=self.slices.count)
            scaled = self._scaled(loss)
        gradients = []
        if self.training and self.trainable:
            upstream = tape.gradient(scaled, [*flat, *extra, *(each._value for each in self.trainable)])
            rows, single = upstream[: len(flat)], upstream[len(flat) : len(flat) + len(extra)]
            direct = upstream[len(flat) + len(extra) :]
            pairs = zip(direct, self._backpropagated(rows, single), self.trainable, strict=True)
            gradients = [added(*each) for each in pairs]
        for variable, value in scope.updates:
            variable.assign(value)
        self._apply(gradients)
        return self._compute_metrics(predictions)

    @contextmanager
    def _after(self, first: dict[str, Any]) -> Iterator[Any]:
        """A scope in which the state is what the slices made of it."""
        with state_scope(()) as scope:
            for variable, value in self._state_after(first):
                variable.assign(value)
            self.statistics.update(first["sum"]["moments"])
            yield scope

    def _output(self, batch: Any, share: Any, start: Any) -> dict[str, Any]:
        """A slice forward: what it predicts, what it adds to the loss, what it makes of the state."""
        with self._random(batch, start), ExitStack() as stack:
            scope = stack.enter_context(self.state.as_the_batch_began())
            moments = stack.enter_context(self.statistics.recorded())
            predictions = self._forward(batch)
            self._decide_added(batch[0])
            extra = self._added_parts(share)
        state = self.state.of_slice(scope, share)
        moments = self.statistics.weighted(moments, share)
        return {
            "sum": {"added": extra, "moments": moments, "state": state["sum"]},
            "latest": {"state": state["latest"]},
            "rows": self.outputs.of_slice(predictions),
            "pieces": (),
        }

    def _added_parts(self, share: Any) -> list[Any]:
        weight, aggregate = self._weight(share), self.model._aggregate_additional_loss
        values = [aggregate(each) for each in added_losses(self.model)]
        return [each * tensorflow().cast(weight(at), each.dtype) for at, each in enumerate(values)]

    def _backpropagated(self, rows: list[Any], single: list[Any]) -> list[Any]:
        """The gradients of the weights from those of the outputs and of the added losses."""

        def work(data: Any, share: Any, start: Any) -> dict[str, Any]:
            tf, (batch, upstream) = tensorflow(), data
            with self._random(batch, start):
                with tf.GradientTape() as tape, ExitStack() as stack:
                    stack.enter_context(self.state.as_the_batch_began())
                    stack.enter_context(self.statistics.recorded())
                    predictions = keras().tree.flatten(self._forward(batch))
                    targets = [each for each in predictions if each.dtype.is_floating] + self._added_parts(share)
                pairs = zip(targets, [*upstream, *single], strict=True)
                reached = [(target, gradient) for target, gradient in pairs if gradient is not None]
                gradients = (
                    self._gradients(tape, *zip(*reached, strict=True)) if reached else [None] * len(self.trainable)
                )
            found = self.gradients.of_slice(gradients, batch, slices.rehearsal)
            return {"sum": found["sum"], "latest": found["latest"], "rows": (), "pieces": found["pieces"]}

        rows = [None if each is None else tensorflow().convert_to_tensor(each) for each in rows]
        slices = self.slices = Slices((self.batch, rows), self.size, jit=self.slices.jit)
        return self.gradients.of_batch(slices.run(work))

    # Both.

    def _forward(self, batch: Any) -> Any:
        model, x = self.model, batch[0]
        return model(x, training=self.training) if model._call_has_training_arg else model(x)

    def _loss(self, batch: Any, predictions: Any) -> Any:
        x, y, sample_weight = batch
        return self.model._compute_loss(
            x=x, y=y, y_pred=predictions, sample_weight=sample_weight, training=self.training
        )

    def _scaled(self, loss: Any) -> Any:
        return self.model.optimizer.scale_loss(loss) if self.training and self.model.optimizer is not None else loss

    def _gradients(self, tape: Any, targets: Any, upstream: Any = None) -> list[Any]:
        if not self.training:
            return [None] * len(self.trainable)
        sources = [each._value for each in self.trainable]
        since = operation_count()
        gradients = list(tape.gradient(targets, sources, output_gradients=upstream))
        if not self.slices.jit:
            weights_before_inputs(gradients, since)
        return gradients

    def _random(self, batch: Any, start: Any) -> AbstractContextManager[None]:
        tf = tensorflow()
        rows = tf.shape(next(each for each in tf.nest.flatten(batch) if each is not None))[0]
        place = Rows(self.slices.count, start, rows, self.size)
        return whole_batch_random(place, self.slices.rehearsal, jit=self.slices.jit)

    def _state_after(self, found: dict[str, Any]) -> list[tuple[Any, Any]]:
        return self.state.after({"sum": found["sum"]["state"], "latest": found["latest"]["state"]})

    def _apply(self, gradients: list[Any]) -> None:
        if self.training and self.trainable:
            self.model.optimizer.apply_gradients(zip(gradients, self.trainable, strict=True))

    def _compute_metrics(self, predictions: Any) -> Any:
        x, y, sample_weight = self.batch
        return self.model.compute_metrics(x, y, predictions, sample_weight=sample_weight)


def own(model: Any, name: str) -> bool:
    """Whether a method of a model is not Keras's."""
    return getattr(getattr(model, name), "__func__", None) is not getattr(keras().Model, name)


def _counts_samples(model: Any) -> bool:
    """Whether metrics are Keras's own, which count samples; others may do anything."""
    if own(model, "compute_metrics"):
        return False
    metrics = model._compile_metrics.metrics if model._compile_metrics is not None else []
    owners = [type(each) for each in metrics] + [each._fn for each in metrics if hasattr(each, "_fn")]
    return all(each.__module__.startswith("keras.") for each in owners)
