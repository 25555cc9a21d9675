"""`memfit.compare`: what two models take, side by side."""

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memfit.estimation.estimate import estimate
from memfit.estimation.measure import Measurement
from memfit.estimation.measure import measure as measured_run
from memfit.estimation.phases import Peak
from memfit.estimation.regime import Jit, Regime
from memfit.hardware.catalog import GPU
from memfit.planning.cost import CostModel, floating_point_operations
from memfit.slimming.accuracy import accuracy
from memfit.slimming.verdict import Verdict, verdict
from memfit.units import Size


@dataclass(frozen=True)
class ModelFacts:
    """What one model takes. Unknown is `None`."""

    name: str
    parameters: int
    forward_flops: float
    """Multiplications and additions of convolutions and matrix products, for one sample."""
    train_peak: Peak
    """Predicted, like all peaks without "measured"."""
    predict_peak: Peak | None
    """With the optimizer's state in memory, as between epochs of `fit`."""
    step_seconds: float
    """Predicted, for comparing only: no card reaches its peak rates."""
    file_bytes: int
    """Of the saved weights."""
    accuracy: float | None = None
    measured: Measurement | None = None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        predict = self.predict_peak
        return {
            "name": self.name,
            "parameters": self.parameters,
            "forward_flops": self.forward_flops,
            "train_peak_bytes": self.train_peak.value,
            "train_peak_low_bytes": self.train_peak.low,
            "train_peak_high_bytes": self.train_peak.high,
            "predict_peak_bytes": None if predict is None else predict.value,
            "predict_peak_low_bytes": None if predict is None else predict.low,
            "predict_peak_high_bytes": None if predict is None else predict.high,
            "predicted_step_seconds": self.step_seconds,
            "file_bytes": self.file_bytes,
            "accuracy": self.accuracy,
            "measured": None if self.measured is None else self.measured.to_dict(),
        }


@dataclass(frozen=True)
class Comparison:
    """Two models at one batch size on one card."""

    first: ModelFacts
    second: ModelFacts
    batch_size: int
    gpu: GPU
    regime: Regime

    @property
    def verdict(self) -> Verdict:
        """What the second model gains, and what it does not, in words."""
        return verdict(self.first, self.second)

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "batch_size": self.batch_size,
            "gpu": self.gpu.to_dict(),
            "regime": self.regime,
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "gained": list(self.verdict.gained),
            "not_gained": list(self.verdict.not_gained),
        }

    def __str__(self) -> str:
        from memfit.report.slim_compare import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.slim_compare import comparison_html

        return comparison_html(self)


def compare(
    a: Any,
    b: Any,
    *,
    batch_size: int,
    data: Any | None = None,
    gpu: GPU | Size | None = None,
    jit: Jit = "auto",
    measure: bool = False,
) -> Comparison:
    """Put two models side by side: size, work, predicted memory and time, and what was gained.

    Args:
        a: A built, compiled Keras model.
        b: The one to compare with it, such as `memfit.slim(a, separable=True)`.
        batch_size: The batch size.
        data: Labelled data, arrays `(x, y)` or a dataset of batches, to tell the accuracy of both.
        gpu: The card, as for `memfit.estimate`.
        jit: What `compile(jit_compile=...)` will be given on the target.
        measure: Also run both for a few steps in a process of their own, on the GPU or on the CPU through TensorFlow's
            BFC allocator.

    Returns:
        The comparison; print it, or read `verdict.gained` and `verdict.not_gained`.

    Example:
        ```python
        import keras
        import memfit

        model = keras.applications.MobileNet(weights=None)
        model.compile("adam", "sparse_categorical_crossentropy")
        print(memfit.compare(model, memfit.slim(model, width=0.5), batch_size=32, jit=False))
        ```
    """
    look = partial(_facts, batch_size=batch_size, data=data, gpu=gpu, jit=jit, measure=measure)
    (first, target, regime), (second, _, _) = look(a), look(b)
    return Comparison(first, second, batch_size, target, regime)


def _facts(
    model: Any, *, batch_size: int, data: Any | None, gpu: GPU | Size | None, jit: Jit, measure: bool
) -> tuple[ModelFacts, GPU, Regime]:
    predicted = estimate(model, batch_size, gpu=gpu, jit=jit)
    step = predicted.step
    flops = sum(
        floating_point_operations(step, number, 1) for number, op in enumerate(step.ops) if op.part == "forward"
    )
    right = None if data is None else accuracy(partial(model.predict, verbose=0), data, batch_size)
    run = measured_run(model, batch_size, jit=None if jit == "auto" else jit) if measure else None
    facts = ModelFacts(
        name=model.name,
        parameters=model.count_params(),
        forward_flops=flops,
        train_peak=predicted.steady_peak,
        predict_peak=predicted.phases["predict"],
        step_seconds=CostModel(predicted.gpu, predicted.regime).of(step, batch_size).seconds(batch_size),
        file_bytes=saved_bytes(model),
        accuracy=right,
        measured=run,
    )
    return facts, predicted.gpu, predicted.regime


def saved_bytes(model: Any) -> int:
    """The size of a model's weights in a file, without the optimizer's state."""
    with tempfile.TemporaryDirectory(prefix="memfit-") as directory:
        path = Path(directory) / "model.weights.h5"
        # Keras would save what hangs on the model, the optimizer's slots with it.
        optimizer, model.optimizer = model.optimizer, None
        try:
            model.save_weights(path)
        finally:
            model.optimizer = optimizer
        return path.stat().st_size
