"""`memfit.compress.quantize`: a trained model as a small LiteRT file, and what that costs in accuracy."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memfit.compress.aware import stripped
from memfit.compress.destination import beside, checked
from memfit.compress.lite import LiteFile, Scheme, converted
from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.slimming.accuracy import accuracy
from memfit.slimming.rebuild import graph_of, kept, rebuild

_SCHEMES = ("int8", "float16", "dynamic")
# More samples move the ranges little and take longer.
_MOST_SAMPLES = 256
_BATCH = 64


@dataclass(frozen=True)
class Quantized:
    """A quantized file, next to the same model in float32."""

    path: Path
    scheme: Scheme
    file_bytes: int
    float32_file_bytes: int
    activation_peak: int
    """Bytes of activations while one sample goes through the file, without its weights; from the file's own tensors."""
    float32_activation_peak: int
    accuracy: float | None = None
    """Of the file, on the data that was given."""
    float32_accuracy: float | None = None

    def evaluate(self, data: Any) -> float:
        """The share of labels the file gets right on arrays `(x, y)` or a dataset of batches."""
        return accuracy(LiteFile(self.path).predict, data, _BATCH)

    def predict(self, inputs: Any) -> Any:
        """What the file says to a batch of inputs."""
        return LiteFile(self.path).predict(inputs)

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "path": str(self.path),
            "scheme": self.scheme,
            "file_bytes": self.file_bytes,
            "float32_file_bytes": self.float32_file_bytes,
            "activation_peak_bytes": self.activation_peak,
            "float32_activation_peak_bytes": self.float32_activation_peak,
            "accuracy": self.accuracy,
            "float32_accuracy": self.float32_accuracy,
        }

    def __str__(self) -> str:
        from memfit.report.compress_quantized import quantized_text

        return quantized_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.compress_quantized import quantized_html

        return quantized_html(self)


def quantize(
    model: Any,
    path: str | Path,
    *,
    scheme: Scheme = "int8",
    calibration: Any | None = None,
    data: Any | None = None,
    force: bool = False,
) -> Quantized:
    """Write a trained model as a quantized LiteRT file.

    It saves memory where the file runs; training takes as much as before.

    Args:
        model: A built Functional or Sequential model, also one that `quantization_aware` made.
        path: The file to write, such as `model.tflite`.
        scheme: "int8" for weights and activations, which needs `calibration`; "dynamic" for int8 weights alone;
            "float16" for weights of half the size.
        calibration: For int8: inputs as the model will see them, as an array, a list of arrays for several inputs, or a
            dataset of batches; a hundred are enough.
        data: Labelled data, arrays `(x, y)` or a dataset of batches, to tell the accuracy before and after.
        force: Replace a file that is there.

    Returns:
        The file's size, peak and accuracy next to those of float32.

    Raises:
        InputError: If the model is not Functional, the scheme is none, or the calibration set has the wrong shape.
        ConversionError: If TensorFlow cannot convert the model.
    """
    graph_of(model)
    if scheme not in _SCHEMES:
        raise InputError(f"scheme={scheme!r} must be one of {', '.join(map(repr, _SCHEMES))}.")
    target = checked(path, force=force)
    samples = _samples(model, calibration) if scheme == "int8" else []
    plain = _in_float32(stripped(model))
    with beside(target) as folder:
        reference, file = folder / "float32", folder / "quantized"
        reference.write_bytes(converted(plain, None))
        file.write_bytes(converted(plain, scheme, samples))
        found = Quantized(
            path=target,
            scheme=scheme,
            file_bytes=file.stat().st_size,
            float32_file_bytes=reference.stat().st_size,
            activation_peak=LiteFile(file, delegates=False).activation_peak(),
            float32_activation_peak=LiteFile(reference, delegates=False).activation_peak(),
            accuracy=None if data is None else accuracy(LiteFile(file).predict, data, _BATCH),
            float32_accuracy=None if data is None else accuracy(partial(plain.predict, verbose=0), data, _BATCH),
        )
        # Only now: data that cannot be used must not cost a file that was there.
        file.replace(target)
    return found


def _samples(model: Any, calibration: Any | None) -> list[list[Any]]:
    """Samples for calibration, each as one array per input with a batch of one."""
    if calibration is None:
        raise InputError(
            'scheme="int8" needs calibration=, inputs as the model will see them, to find the range of each '
            'activation. Pass some training inputs, or scheme="dynamic".'
        )
    found: list[list[Any]] = []
    batches = calibration if isinstance(calibration, tensorflow().data.Dataset) else [calibration]
    for batch in batches:
        if len(found) >= _MOST_SAMPLES:
            break
        # A dataset for training has labels too.
        labelled = batches is calibration and isinstance(batch, tuple)
        inputs = batch[0] if labelled else batch
        arrays = [np.asarray(each) for each in keras().tree.flatten(inputs)]
        _refuse_shapes(model, arrays)
        found += [[value[None] for value in sample] for sample in zip(*arrays, strict=False)]
    if not found:
        raise InputError("calibration is empty: expected at least one sample, better a hundred.")
    return [
        [value.astype(each.dtype) for value, each in zip(sample, model.inputs, strict=True)]
        for sample in found[:_MOST_SAMPLES]
    ]


def _refuse_shapes(model: Any, arrays: list[Any]) -> None:
    expected = [tuple(each.shape[1:]) for each in model.inputs]
    got = [array.shape[1:] for array in arrays]
    fits = len(got) == len(expected) and all(
        len(one) == len(other) and all(size in (None, found) for size, found in zip(other, one, strict=True))
        for one, other in zip(got, expected, strict=True)
    )
    if not fits:
        raise InputError(
            f"calibration has samples of shape {', '.join(map(str, got))}; {model.name!r} takes "
            f"{', '.join(map(str, expected))}. Pass inputs with the samples along the first dimension."
        )


def _in_float32(model: Any) -> Any:
    """The model, or a copy that computes in float32 where it does not: the converter starts from there."""
    policies = {layer.compute_dtype for layer in model._flatten_layers(include_self=False)}
    if policies <= {"float32", "int32", "int64", None}:
        return model
    layers = keras().layers.Layer
    return rebuild(model, lambda call: kept(call, {"dtype": "float32"}) if isinstance(call.layer, layers) else None)
