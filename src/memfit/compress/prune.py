"""`memfit.compress.prune`: the smallest weights become zero while a model trains, and stay it."""

from collections.abc import Mapping, Sequence
from typing import Any

from memfit.compress.kernels import kernels_of
from memfit.compress.masks import Pattern, Schedule, fits_two_of_four, largest, scheduled_sparsity, two_of_four
from memfit.compress.sparsity import SparsityReport, sparsity_of
from memfit.errors import InputError
from memfit.framework import as_keras_callback, tensorflow

# Where training has a known length, the rest of it is left for the weights to settle.
_PRUNED_SHARE = 0.6
_TWO_OF_FOUR = 0.5


def prune(
    model: Any,
    sparsity: float = 0.5,
    *,
    schedule: Schedule = "polynomial",
    pattern: Pattern = "unstructured",
    begin: int = 0,
    end: int | None = None,
    every: int = 20,
    layers: Sequence[str] | None = None,
) -> Any:
    """Make a callback that prunes a model by magnitude while `fit` trains it.

    Zeros save no memory in training, and none in prediction unless the hardware or the file format skips them:
    `memfit.compress.export` writes a file that does. `memfit.compress.prune_filters` removes whole filters instead.

    Args:
        model: A built Keras model; the one the callback is used with.
        sparsity: The share of each kernel that becomes zero, 0 to 1. With `pattern="2:4"` it is 0.5.
        schedule: "polynomial" prunes more and more until `end`, "constant" all at `begin`.
        pattern: "unstructured", or "2:4" for the sparse tensor cores of NVIDIA cards since Ampere.
        begin: The step pruning starts at.
        end: The step the sparsity is reached at; by default after 60 % of the training.
        every: How many steps lie between two choices of what is pruned.
        layers: Names of layers; by default every convolution and dense layer.

    Returns:
        The callback. `report()` says how sparse each layer is, `strip()` ends the pruning.

    Raises:
        InputError: If the sparsity is not between 0 and 1, or a layer cannot be pruned.

    Example:
        ```python
        import keras
        import memfit
        import numpy as np

        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        pruning = memfit.compress.prune(model, 0.8)
        model.fit(np.zeros((64, 8)), np.zeros((64, 2)), epochs=4, verbose=0, callbacks=[pruning])
        print(pruning.report())
        ```
    """
    kernels = kernels_of(model, layers)
    refuse_sparsity(sparsity)
    if schedule not in ("constant", "polynomial"):
        raise InputError(f'schedule={schedule!r} must be "constant" or "polynomial".')
    if pattern not in ("unstructured", "2:4"):
        raise InputError(f'pattern={pattern!r} must be "unstructured" or "2:4".')
    if pattern == "2:4":
        kernels = _in_fours(kernels, sparsity, named=layers is not None)
    for name, value, least in (("begin", begin, 0), ("every", every, 1), ("end", begin if end is None else end, begin)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}={value!r} must be a number of steps of at least {least}.")
    return as_keras_callback(Pruning)(model, kernels, sparsity, schedule, pattern, begin, end, every)


def refuse_sparsity(sparsity: Any) -> None:
    """Say what a sparsity is."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, (int, float)) or not 0 <= sparsity < 1:
        raise InputError(
            f"sparsity={sparsity!r} must be a number from 0 to 1, and less than 1: 0.8 makes 80 % of the weights zero."
        )


def _in_fours(kernels: Mapping[str, Any], sparsity: float, *, named: bool) -> dict[str, Any]:
    if sparsity != _TWO_OF_FOUR:
        raise InputError(f'sparsity={sparsity!r} with pattern="2:4" must be 0.5: two of every four weights.')
    odd = [name for name, kernel in kernels.items() if not fits_two_of_four(tuple(kernel.shape))]
    if named and odd:
        raise InputError(f'{", ".join(odd)}: pattern="2:4" needs inputs in fours. Leave it out.')
    return {name: kernel for name, kernel in kernels.items() if name not in odd}


class Pruning:
    """Masks of a model's kernels, put onto them after every step."""

    # Keras sets these.
    model: Any
    params: Any

    def __init__(
        self,
        model: Any,
        kernels: Mapping[str, Any],
        sparsity: float,
        schedule: Schedule,
        pattern: Pattern,
        begin: int,
        end: int | None,
        every: int,
    ) -> None:
        super().__init__()
        self.sparsity, self.schedule, self.pattern = sparsity, schedule, pattern
        self.begin, self.end, self.every = begin, end, every
        self.step = 0
        self._pruned = model
        self._kernels = dict(kernels)
        self._masks: dict[str, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Find out how long training will be."""
        del logs
        if self.model is not self._pruned:
            raise InputError(
                f"the pruning was made for {self._pruned.name!r} and is used with {self.model.name!r}. "
                "Make one for the model that is trained."
            )
        if self.end is None:
            steps = self.params.get("steps")
            if steps is None and self.schedule == "polynomial":
                raise InputError("how many steps an epoch has is not known: pass end=, the step to be done at.")
            total = (steps or 0) * self.params.get("epochs", 1)
            self.end = self.begin + max(1, round(_PRUNED_SHARE * (total - self.begin)))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Choose again what goes, if it is time; what has gone stays away."""
        del batch, logs
        end = self.begin if self.end is None else self.end
        due = self.begin <= self.step <= end and (self.step - self.begin) % self.every == 0
        if due or self.step == end:
            self._choose(scheduled_sparsity(self.sparsity, self.schedule, self.step, self.begin, end))
        self.step += 1
        self._apply()

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the zeros in place."""
        del logs
        self._apply()

    def report(self) -> SparsityReport:
        """How sparse each layer is now."""
        return sparsity_of(self._pruned)

    def strip(self) -> Any:
        """End the pruning: the zeros are weights like others from now on. Returns the model."""
        self._apply()
        self._masks = {}
        self._kernels = {}
        return self._pruned

    def _choose(self, sparsity: float) -> None:
        tf = tensorflow()
        for name, kernel in self._kernels.items():
            weights = kernel.numpy()
            mask = two_of_four(weights) if self.pattern == "2:4" else largest(weights, sparsity)
            self._masks[name] = tf.constant(mask, kernel.dtype)

    def _apply(self) -> None:
        for name, mask in self._masks.items():
            self._kernels[name].assign(self._kernels[name].value * mask)
