"""`memfit.suggest_backbones`: the networks of `keras.applications` that can be trained in a budget.

`backbones.csv` holds what https://keras.io/api/applications documents: parameters with the ImageNet head, accuracy on
ImageNet at each network's own resolution. What was not found there is empty.
"""

import csv
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from memfit.cache import cached
from memfit.errors import InputError
from memfit.estimation.estimate import estimate_ahead, find_device, refuse_batch
from memfit.estimation.phases import Peak
from memfit.estimation.regime import Jit
from memfit.framework import installed_version, keras
from memfit.hardware.catalog import GPU
from memfit.units import Size, format_size, parse_size

# Weights and the two slots of Adam, in float32, stay all the time.
_RESIDENT_BYTES = 12
# With the ImageNet head taken off, the largest of them (VGG16) keep a tenth of their parameters.
_LEAST_SHARE_WITHOUT_HEAD = 0.1
# Tracing is one thread's work, so that more at once than one traced and one optimised would only wait.
_AT_ONCE = 2


@dataclass(frozen=True)
class Documented:
    """What Keras documents of one network; unknown is `None`."""

    name: str
    parameters: int | None
    top1: float | None
    top5: float | None


@dataclass(frozen=True)
class Backbone:
    """A network that fits. The peak is predicted, the accuracy is Keras's own figure on ImageNet."""

    name: str
    parameters: int
    """Without the ImageNet head."""
    peak: Peak
    top1: float | None
    top5: float | None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "predicted_peak_bytes": self.peak.value,
            "predicted_peak_low_bytes": self.peak.low,
            "predicted_peak_high_bytes": self.peak.high,
            "documented_top1": self.top1,
            "documented_top5": self.top5,
        }


@dataclass(frozen=True)
class Suggestions:
    """The networks that fit, the most accurate first, and why others do not."""

    backbones: tuple[Backbone, ...]
    rejected: tuple[tuple[str, str], ...]
    input_shape: tuple[int, ...]
    batch_size: int
    budget: int
    gpu: GPU

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "input_shape": list(self.input_shape),
            "batch_size": self.batch_size,
            "budget_bytes": self.budget,
            "gpu": self.gpu.to_dict(),
            "backbones": [each.to_dict() for each in self.backbones],
            "rejected": dict(self.rejected),
        }

    def __str__(self) -> str:
        from memfit.report.slim_backbones import suggestions_text

        return suggestions_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.slim_backbones import suggestions_html

        return suggestions_html(self)


def suggest_backbones(
    input_shape: Sequence[int],
    *,
    budget: Size,
    batch_size: int,
    names: Sequence[str] | None = None,
    count: int = 5,
    gpu: GPU | Size | None = None,
    jit: Jit = "auto",
) -> Suggestions:
    """Find networks of `keras.applications` whose training, with Adam in float32, fits into a budget.

    Networks are tried in the order of their documented accuracy until enough fit. What is plainly too large is passed
    over; each of the others takes some 10 seconds to predict, so that all of it may take a minute or more, the first
    time: what was predicted is kept.

    Args:
        input_shape: Height, width and channels of the pictures.
        budget: The memory there is, such as "8GiB".
        batch_size: The batch size.
        names: Which networks to try, such as `["MobileNetV2", "ResNet50"]`; by default all.
        count: How many to find.
        gpu: The card, as for `memfit.estimate`.
        jit: What `compile(jit_compile=...)` will be given on the target.

    Returns:
        The networks that fit, without their ImageNet head, and why the others tried do not.

    Raises:
        InputError: If the shape, a name or a number is none.
    """
    shape = _refuse_shape(input_shape)
    refuse_batch(batch_size)
    limit, target = parse_size(budget, what="budget"), find_device(gpu)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"count={count!r} must be a whole number of at least 1.")
    found: list[Backbone] = []
    rejected: list[tuple[str, str]] = []
    waiting = deque(_in_order(names))
    started: deque[tuple[str, Callable[[], Backbone | str]]] = deque()
    while len(found) < count and (waiting or started):
        # The next is traced while one is optimised or compiled, unless those started may be enough.
        while waiting and (not started or len(started) < min(_AT_ONCE, count - len(found))):
            each = waiting.popleft()
            started.append((each.name, _started(each, shape, batch_size, limit, target, jit)))
        name, finish = started.popleft()
        answer = finish()
        if isinstance(answer, Backbone):
            found.append(answer)
        else:
            rejected.append((name, answer))
    return Suggestions(tuple(found), tuple(rejected), shape, batch_size, limit, target)


@cache
def documented() -> tuple[Documented, ...]:
    """Every network of the table."""
    with files(__package__).joinpath("backbones.csv").open(encoding="utf-8") as lines:
        return tuple(
            Documented(
                row["name"],
                round(float(row["parameters_millions"]) * 1e6) if row["parameters_millions"] else None,
                round(float(row["top1"]) / 100, 3) if row["top1"] else None,
                round(float(row["top5"]) / 100, 3) if row["top5"] else None,
            )
            for row in csv.DictReader(lines)
        )


def _in_order(names: Sequence[str] | None) -> Iterator[Documented]:
    known = {each.name: each for each in documented()}
    if names is not None and (missing := [name for name in names if name not in known]):
        raise InputError(f"{', '.join(missing)} is no network of keras.applications. There are: {', '.join(known)}.")
    chosen = known.values() if names is None else [known[name] for name in names]
    yield from sorted(chosen, key=lambda each: -(each.top1 or 0))


def _started(
    each: Documented, shape: tuple[int, ...], batch: int, limit: int, gpu: GPU, jit: Jit
) -> Callable[[], Backbone | str]:
    """Start to predict a network; what is returned gives the network, or why it is none for this budget."""
    least = round((each.parameters or 0) * _LEAST_SHARE_WITHOUT_HEAD) * _RESIDENT_BYTES
    if least > limit:
        return lambda: f"weights and optimizer alone take {format_size(least)}"
    parts = [each.name, str(shape), str(batch), str(limit), repr(gpu), str(jit)]
    versions = [f"{name} {installed_version(name)}" for name in ("keras", "tensorflow", "tensorflow-cpu")]
    key = [*parts, *versions]
    try:
        known = cached("backbone", key, _raise_unknown)
    except _UnknownError:
        # It takes seconds, so it says what it is doing.
        from memfit.report.console import stderr

        stderr().print(f"predicting {each.name} ...", style="dim")
        predicted = _predicted(each, shape, batch, limit, gpu, jit)
        return lambda: _read(each, cached("backbone", key, predicted))
    return lambda: _read(each, known)


class _UnknownError(Exception):
    """Nothing is kept."""


def _raise_unknown() -> bytes:
    raise _UnknownError


def _read(each: Documented, stored: bytes) -> Backbone | str:
    answer = json.loads(stored)
    if "why" in answer:
        return str(answer["why"])
    return Backbone(each.name, answer["parameters"], Peak(*answer["peak"]), each.top1, each.top5)


def _predicted(
    each: Documented, shape: tuple[int, ...], batch: int, limit: int, gpu: GPU, jit: Jit
) -> Callable[[], bytes]:
    """Trace a network; what is returned waits for its peak."""
    try:
        model = _classifier(each.name, shape)
    except ValueError as error:
        # Keras says which shapes a network takes.
        return _because(" ".join(str(error).split()))
    least = _least_bytes(model, batch, compiled=jit is not False)
    if least > limit:
        return _because(f"needs at least {format_size(least)}")
    found = estimate_ahead(model, batch, gpu=gpu, jit=jit)

    def answer() -> bytes:
        peak = found.steady_peak
        if not found.fits(limit):
            return _because(f"needs {format_size(peak.value)}")()
        body = model.count_params() - model.layers[-1].count_params()
        return json.dumps({"parameters": body, "peak": [peak.value, peak.low, peak.high]}).encode()

    return answer


def _because(why: str) -> Callable[[], bytes]:
    return lambda: json.dumps({"why": why}).encode()


def _classifier(name: str, shape: tuple[int, ...]) -> Any:
    make = getattr(keras().applications, name)
    body = make(weights=None, include_top=False, input_shape=shape, pooling="avg")
    model = keras().Model(body.inputs, keras().layers.Dense(10)(body.outputs[0]), name=name)
    model.compile("adam", keras().losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _least_bytes(model: Any, batch: int, *, compiled: bool) -> int:
    """What a training step cannot do without: weights, slots, and what layers keep of what they read."""
    # XLA makes what was normalised again, and some of the rest as well; the graph executor keeps all of it.
    keeps = _convolves if compiled else _keeps_what_it_reads
    every = [tensor for layer in model.layers if keeps(layer) for tensor in keras().tree.flatten(layer.input)]
    read = {id(tensor): tensor for tensor in every}
    activations = sum(4 * batch * math.prod(tensor.shape[1:]) for tensor in read.values())
    return int(_RESIDENT_BYTES * model.count_params() + activations // (2 if compiled else 1))


def _convolves(layer: Any) -> bool:
    layers = keras().layers
    return isinstance(layer, (layers.Conv2D, layers.DepthwiseConv2D, layers.SeparableConv2D))


def _keeps_what_it_reads(layer: Any) -> bool:
    """Whether the gradient is computed from what the layer reads; that of ReLU is from what it gives."""
    layers, activations = keras().layers, keras().activations
    if isinstance(layer, layers.Activation):
        return layer.activation in (activations.silu, activations.gelu)
    return _convolves(layer) or isinstance(layer, (layers.BatchNormalization, layers.Multiply))


def _refuse_shape(shape: Any) -> tuple[int, ...]:
    given = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else ()
    if len(given) != 3 or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in given):
        raise InputError(f"input_shape={shape!r} must be height, width and channels, such as (224, 224, 3).")
    return given
