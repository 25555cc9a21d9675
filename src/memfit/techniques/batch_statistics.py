"""The moving statistics of batch normalisation, updated once with the statistics of a batch that came in slices."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.framework import keras, tensorflow
from memfit.techniques.instance import replaced


def note_moments(layer: Any, mean: Any, variance: Any) -> None:
    """Tell whoever records a layer's statistics what they are, where the layer does not compute them itself."""
    if (note := getattr(layer._moments, "note", None)) is not None:
        note(mean, variance)


class BatchStatistics:
    """Mean and variance of every batch normalisation of a model, in the order in which they are computed."""

    def __init__(self, model: Any) -> None:
        kind = keras().layers.BatchNormalization
        self._layers = [each for each in model._flatten_layers() if isinstance(each, kind)]
        self._called: list[Any] = []
        self.variables = {id(each) for layer in self._layers for each in layer.non_trainable_variables}

    @contextmanager
    def recorded(self) -> Iterator[list[tuple[Any, Any]]]:
        """Collect `(mean, variance)` of each call in here; the layers' own updates are somebody else's to drop."""
        found: list[tuple[Any, Any]] = []
        self._called = []
        with ExitStack() as stack:
            for layer in self._layers:
                stack.enter_context(self._recorded(layer, found))
            yield found

    @contextmanager
    def _recorded(self, layer: Any, found: list[tuple[Any, Any]]) -> Iterator[None]:
        original = layer._moments

        def note(mean: Any, variance: Any) -> None:
            found.append((mean, variance))
            self._called.append(layer)

        def moments(inputs: Any, mask: Any) -> tuple[Any, Any]:
            mean, variance = original(inputs, mask)
            note(mean, variance)
            return mean, variance

        moments.note = note  # type: ignore[attr-defined]
        with replaced(layer, "_moments", moments):
            yield

    def weighted(self, recorded: Sequence[tuple[Any, Any]], share: Any) -> list[Any]:
        """A slice's part of the first and second moment of the batch."""
        tf = tensorflow()
        self._called = self._called[: len(recorded)]
        moments = []
        for mean, variance in recorded:
            part = tf.cast(share, mean.dtype)
            moments += [part * mean, part * (variance + tf.square(mean))]
        return moments

    def update(self, moments: Sequence[Any]) -> None:
        """What the layers themselves do with the statistics of a batch."""
        tf = tensorflow()
        for layer, mean, square in zip(self._called, moments[::2], moments[1::2], strict=True):
            variance = tf.maximum(square - tf.square(mean), 0)
            if layer.renorm:
                layer._update_renorm_statistics(mean, variance)
                continue
            for moving, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
                before = tf.cast(moving.value, value.dtype)
                moving.assign(before * layer.momentum + value * (1.0 - layer.momentum))
