"""`memfit.estimate`: what a step of a model will take on a GPU that need not be there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from memfit.errors import InputError
from memfit.estimation.composition import Composition, Kind
from memfit.estimation.graph import NO_LIMIT
from memfit.estimation.phases import Peak, PhasePrediction
from memfit.estimation.regime import Jit, Regime, resolve_function_regime, resolve_regime
from memfit.estimation.source import UNKNOWN_CARD, FunctionSubject, ModelSubject, Source, Subject, cpu
from memfit.estimation.xla.hlo import NotCompilableError
from memfit.framework import keras
from memfit.hardware.card import card_here
from memfit.hardware.catalog import GPU, catalog, find_gpu
from memfit.trace.function import TraceError
from memfit.trace.own_step import OwnStep
from memfit.trace.step import Phase, Step
from memfit.trace.tracer import refuse_unready
from memfit.units import MIB, Size, format_size, parse_size

# What CUDA, cuDNN and cuBLAS hold outside TensorFlow's pool: 625 MiB on an H200 with convolutions and matrix
# products loaded; 1.3 GiB was reported for an RTX 3090.
_CONTEXT, _CONTEXT_LOW, _CONTEXT_HIGH = 625 * MIB, 400 * MIB, 1400 * MIB
_MOST_BATCH = 2**20


def estimate(
    model: Any,
    batch_size: int | None = None,
    *,
    gpu: GPU | Size | None = None,
    jit: Jit = "auto",
    data: Any | None = None,
    resident: Size = 0,
) -> "Estimate":
    """Predict the peak memory of a model, or of a training step of your own. Nothing is run.

    Variables that do not exist yet, such as those of a model that is not built or the slots of an optimizer, are
    created as the first step of training would create them. No variable changes its value.

    Args:
        model: A compiled Keras model. Or a training step: a `tf.function`, or a Python function that could be one.
        batch_size: The batch size. For a training step, by default that of its example arguments.
        gpu: The card, by name or memory size; by default the one in this machine, else a card of 24 GiB. "cpu" is
            this machine's processor on TensorFlow's BFC allocator, what `measure` uses where there is no GPU.
        jit: What `compile(jit_compile=...)` will be given on the target. For a training step, "auto" is what
            `tf.function(jit_compile=...)` was given.
        data: For a model, an example batch `x`, `(x, y)` or `(x, y, sample_weight)`, a `tf.data.Dataset` or a
            `keras.utils.PyDataset`; needed where the model is not built, is subclassed, or has inputs of unknown
            size. For a training step, the arguments it is called with: a tuple, a dictionary by name, or the only
            one. Arrays, tensors and `tf.TensorSpec`s will do; only shapes and types are used. Of a dataset whose
            shapes are unknown, one batch is read. Arguments of a training step whose first dimension is not that of
            the first array, such as a learning rate, do not follow the batch size.
        resident: Bytes of data that lie on the device all the time, such as arrays given to `Dataset.from_tensors`.

    Returns:
        The estimate; print it, or ask it `fits("8GiB")` and `max_batch("8GiB")`.

    Raises:
        InputError: If the model is not ready, or an argument cannot be used.
        TraceError: If its step cannot be traced.

    Example:
        ```python
        import keras
        import memfit

        model = keras.applications.MobileNetV2(weights=None)
        model.compile("adam", "sparse_categorical_crossentropy")
        estimate = memfit.estimate(model, batch_size=64, gpu="RTX 3060")
        print(estimate)
        ```

        A training loop of your own:

        ```python
        @tf.function
        def train_step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
            return loss

        memfit.estimate(train_step, batch_size=64, data=(x[:64], y[:64]), gpu="RTX 3060").max_batch("8GiB")
        ```
    """
    answer = _estimate_of(model, batch_size, gpu, jit, data, resident)
    # Trace now, so that what is wrong with the model is said here.
    _ = answer.steady_peak
    return answer


def estimate_phases(
    model: Any, batch_size: int | None = None, *, gpu: GPU | Size | None = None, jit: Jit = "auto"
) -> "Estimate":
    """The same, with all phases traced: quicker than asking for `phases` afterwards."""
    answer = _estimate_of(model, batch_size, gpu, jit, None, 0)
    answer._source.start(answer.batch_size)
    _ = answer.phases
    return answer


def estimate_ahead(
    model: Any, batch_size: int | None = None, *, gpu: GPU | Size | None = None, jit: Jit = "auto"
) -> "Estimate":
    """The same, with the training step traced and then optimised or compiled in the background: asking waits for it."""
    answer = _estimate_of(model, batch_size, gpu, jit, None, 0)
    answer._source.start(answer.batch_size, ("train",))
    return answer


def _estimate_of(
    model: Any, batch_size: int | None, gpu: GPU | Size | None, jit: Jit, data: Any | None, resident: Size
) -> "Estimate":
    """An estimate of which nothing is traced yet."""
    target = find_device(gpu)
    subject: Subject
    if isinstance(model, keras().Model):
        refuse_unready(model, data)
        if batch_size is None:
            raise InputError("estimate() of a model needs a batch size: memfit.estimate(model, batch_size=32).")
        size = refuse_batch(batch_size)
        subject = ModelSubject(model, data)
        regime, reason = resolve_regime(model, jit, gpu=target is not cpu())
    else:
        step = OwnStep(model, data, None if batch_size is None else refuse_batch(batch_size))
        size, subject = step.batch_size, FunctionSubject(step)
        regime, reason = resolve_function_regime(step.is_compiled, jit)
    if regime == "xla" and target is cpu():
        raise InputError('jit=True on gpu="cpu" is not predicted: XLA is modelled for GPUs only. Pass jit=False.')
    source = Source(subject, target, regime, parse_size(resident, what="resident") if resident else 0)
    return Estimate(source, subject.name, size, target, regime, reason)


def find_device(gpu: GPU | Size | None) -> GPU:
    """The card that was meant; "cpu" is this machine's processor."""
    if isinstance(gpu, GPU):
        return gpu
    if gpu is None:
        return default_gpu()
    return cpu() if isinstance(gpu, str) and gpu.lower() == "cpu" else find_gpu(gpu)


def default_gpu() -> GPU:
    """The card in this machine, or one of a common size."""
    return card_here() or find_gpu(UNKNOWN_CARD)


def refuse_batch(batch_size: int) -> int:
    """The batch size, or an error that says what one is."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= _MOST_BATCH:
        raise InputError(f"batch_size={batch_size!r} must be a whole number from 1 to {_MOST_BATCH}.")
    return batch_size


@dataclass(frozen=True)
class BatchPoint:
    """The peak at one batch size."""

    batch_size: int
    steady_peak: Peak


@dataclass(frozen=True)
class Estimate:
    """The predicted memory of a model on a GPU. Every number is predicted and carries its band."""

    _source: Source
    model_name: str
    batch_size: int
    gpu: GPU
    regime: Regime
    regime_reason: str

    @property
    def steady_peak(self) -> Peak:
        """Bytes in use while training runs, as `get_memory_info` shows them under memory growth."""
        return self._train.steady

    @property
    def first_step_peak(self) -> Peak:
        """The peak of the first step, in which convolution kernels are tried out."""
        return self._train.first_step

    @property
    def reserved(self) -> Peak:
        """What the allocator takes from the card under memory growth; under a limit it takes the limit."""
        return self._train.reserved

    @property
    def process(self) -> Peak:
        """What the driver shows for the process: the allocator's pool, the CUDA context and the libraries."""
        pool = self.reserved
        return Peak(pool.value + _CONTEXT, pool.low + _CONTEXT_LOW, pool.high + _CONTEXT_HIGH)

    @property
    def method(self) -> str:
        """How it was predicted: "executor replay", "XLA compiler", or "HLO liveness" without its answer."""
        return self._train.method

    @property
    def composition(self) -> Composition:
        """What is in memory at the peak."""
        return self._train.composition

    @property
    def unknown_ops(self) -> tuple[str, ...]:
        """Operations whose size is not known; they widen the band."""
        return self._train.unknown_ops

    @cached_property
    def step(self) -> Step:
        """The training step as operations; where XLA compiles it, those the executor would run instead."""
        return self._source.step(self.batch_size)

    def breakdown(self) -> dict[Kind, int]:
        """The bytes at the peak by kind."""
        return self.composition.breakdown()

    def largest(self, count: int = 10) -> list[dict[str, object]]:
        """The largest tensors at the peak, with operation, shape, type, layer and the user's line."""
        return [tensor.to_dict() for tensor in self.composition.live[:count]]

    @cached_property
    def phases(self) -> Mapping[Phase, Peak | None]:
        """The steady peaks of train, evaluate and predict; tracing the last two takes a few seconds.

        A training step of your own has "train" only; a phase that the model cannot do is `None`.
        """
        return {phase: self._phase_peak(phase) for phase in self._source.subject.phases}

    def at(self, batch_size: int) -> "Estimate":
        """The same model at another batch size; it is traced again only where a batch size is fixed inside it."""
        refuse_batch(batch_size)
        return Estimate(self._source, self.model_name, batch_size, self.gpu, self.regime, self.regime_reason)

    def limited(self, limit: Size) -> Peak | None:
        """The steady peak when the GPU is limited to so many bytes; `None` if it does not fit."""
        found = self._limited(self.batch_size, parse_size(limit, what="limit"))
        return found.steady if found else None

    def fits(self, budget: Size) -> bool:
        """Whether training runs under this limit (`memfit.devices.configure(limit=...)`)."""
        return self.limited(parse_size(budget, what="budget")) is not None

    def max_batch(self, budget: Size) -> int:
        """The largest batch size that trains under a limit; 0 if not even one sample does."""
        self._source.refuse_other_batches("the largest batch", self.batch_size)
        limit = parse_size(budget, what="budget")

        def fits(batch: int) -> bool:
            return self._limited(batch, limit, band=False) is not None

        return _largest(fits)

    def batch_curve(self, batch_sizes: Iterable[int] | None = None) -> list[BatchPoint]:
        """The peak against batch size; by default a quarter to four times this one."""
        sizes = batch_sizes or sorted({max(1, int(self.batch_size * factor)) for factor in (0.25, 0.5, 1, 2, 4)})
        return [BatchPoint(size, self.at(size).steady_peak) for size in sizes]

    def gpus(self) -> list[tuple[GPU, int]]:
        """The largest batch on each card of the catalog when nothing is configured.

        Interpolated between batch sizes that are powers of two, so it may be off by a sample or two.
        """
        self._source.refuse_other_batches("the largest batch of each card", self.batch_size)
        points: list[tuple[int, int]] = []
        largest = max(gpu.default_limit for gpu in catalog())
        size = 1
        while size <= _MOST_BATCH and (not points or points[-1][1] < largest):
            found = self._limited(size, NO_LIMIT, band=False)
            points.append((size, found.steady.value if found else NO_LIMIT))
            size *= 2
        return [(gpu, _interpolated(points, gpu.default_limit)) for gpu in catalog()]

    def to_dict(self) -> dict[str, object]:
        """Everything as plain JSON values."""
        limited = self._limited(self.batch_size, self.gpu.default_limit)
        return {
            "model": self.model_name,
            "batch_size": self.batch_size,
            "gpu": self.gpu.to_dict(),
            "regime": self.regime,
            "regime_reason": self.regime_reason,
            "method": self.method,
            "steady_peak_bytes": self.steady_peak.value,
            "low_bytes": self.steady_peak.low,
            "high_bytes": self.steady_peak.high,
            "first_step_peak_bytes": self.first_step_peak.value,
            "first_step_low_bytes": self.first_step_peak.low,
            "first_step_high_bytes": self.first_step_peak.high,
            "reserved_bytes": self.reserved.value,
            "reserved_low_bytes": self.reserved.low,
            "reserved_high_bytes": self.reserved.high,
            "process_bytes": self.process.value,
            "limited_peak_bytes": limited.steady.value if limited else None,
            "fits": limited is not None,
            "breakdown": {f"{kind}_bytes": size for kind, size in self.breakdown().items()},
            "phases": {
                phase: None
                if peak is None
                else {"steady_peak_bytes": peak.value, "low_bytes": peak.low, "high_bytes": peak.high}
                for phase, peak in self.phases.items()
            },
            "layers": {f"{layer}": size for layer, size in list(self.composition.by_layer().items())[:50]},
            "largest": self.largest(20),
            "unknown_ops": list(self.unknown_ops),
        }

    def __str__(self) -> str:
        # The one look to the right: printing is the reporter's work.
        from memfit.report.estimate import estimate_text

        return estimate_text(self)

    def __repr__(self) -> str:
        peak = format_size(self.steady_peak.value)
        return f"<Estimate {self.model_name} batch {self.batch_size} on {self.gpu.name}: {peak}>"

    def _repr_html_(self) -> str:
        from memfit.report.estimate import estimate_html

        return estimate_html(self)

    @cached_property
    def _train(self) -> PhasePrediction:
        # Growth is bounded by the card; what does not fit any card is predicted all the same.
        for limit in (self.gpu.default_limit, 2**60):
            found = self._source.predict("train", self.batch_size, limit=limit, growth=True)
            if found is not None:
                return found
        raise InputError(f"batch_size={self.batch_size} needs more than 64-bit arithmetic holds.")

    def _limited(self, batch: int, limit: int, *, band: bool = True) -> PhasePrediction | None:
        return self._source.predict("train", batch, limit=limit, growth=False, band=band)

    def _phase_peak(self, phase: Phase) -> Peak | None:
        if phase == "train":
            return self.steady_peak
        try:
            found = self._source.predict(phase, self.batch_size, limit=2**60, growth=True)
        except (TraceError, NotCompilableError):
            return None
        return found.steady if found else None


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest batch that fits, by doubling and then halving the interval."""
    if not fits(1):
        return 0
    good, bad = 1, 2
    while bad <= _MOST_BATCH and fits(bad):
        good, bad = bad, bad * 2
    while bad - good > max(1, good // 256):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _interpolated(points: list[tuple[int, int]], limit: int) -> int:
    best = 0
    for (batch, peak), (next_batch, next_peak) in pairwise(points):
        if peak > limit:
            break
        share = (limit - peak) / max(1, next_peak - peak)
        best = int(batch + min(1.0, share) * (next_batch - batch))
    return best
