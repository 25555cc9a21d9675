"""LiteRT files: a model through TensorFlow's converter, and a file through its interpreter."""

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memfit.errors import MemfitError
from memfit.framework import tensorflow

Scheme = Literal["int8", "float16", "dynamic"]


class ConversionError(MemfitError):
    """TensorFlow's converter cannot make a file of the model."""

    exit_code = 1


def converted(model: Any, scheme: Scheme | None, samples: Sequence[Sequence[Any]] = ()) -> bytes:
    """A model as the contents of a LiteRT file, for one sample at a time.

    Args:
        model: A built Keras model that computes in float32.
        scheme: How it is quantized; `None` leaves it in float32.
        samples: For int8: what its inputs look like, each as one array per input.
    """
    tf, frozen = tensorflow(), _frozen(model)
    try:
        with warnings.catch_warnings(), _quietly():
            # It asks for an object to keep variables alive, and there are none; and for statistics that calibration
            # finds by itself.
            warnings.simplefilter("ignore")
            converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
            if scheme is not None:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if scheme == "float16":
                converter.target_spec.supported_types = [tf.float16]
            if scheme == "int8":
                converter.representative_dataset = lambda: iter([list(sample) for sample in samples])
                converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            contents: bytes = converter.convert()
    except Exception as error:
        # The converter raises what its passes raise: ConverterError, RuntimeError, ValueError.
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConversionError(
            f"TensorFlow cannot convert {model.name!r} to {scheme or 'float32'}: {why} "
            'Try scheme="dynamic", which leaves what it does not know in float32.'
        ) from error
    return contents


class LiteFile:
    """A LiteRT file that can be asked."""

    def __init__(self, path: str | Path, *, delegates: bool = True) -> None:
        tf = tensorflow()
        kinds = tf.lite.experimental.OpResolverType
        with warnings.catch_warnings(), _quietly():
            # TensorFlow announces that the interpreter moves to another package.
            warnings.simplefilter("ignore")
            self._interpreter = tf.lite.Interpreter(
                model_path=str(path),
                experimental_op_resolver_type=kinds.AUTO if delegates else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            )
            self._interpreter.allocate_tensors()
        # The converter names its inputs args_0, args_1, ... and may turn them around.
        self._inputs = sorted(self._interpreter.get_input_details(), key=lambda each: each["name"])
        self._output = self._interpreter.get_output_details()[0]

    def predict(self, inputs: Any) -> Any:
        """The first output for a batch, sample by sample."""
        batch = [np.asarray(each) for each in (inputs if isinstance(inputs, (list, tuple)) else (inputs,))]
        found = []
        for sample in zip(*batch, strict=True):
            for detail, value in zip(self._inputs, sample, strict=True):
                self._interpreter.set_tensor(detail["index"], value[None].astype(detail["dtype"]))
            self._interpreter.invoke()
            found.append(self._interpreter.get_tensor(self._output["index"])[0])
        return np.stack(found)

    def activation_peak(self) -> int:
        """The most bytes of tensors that live at a time while one sample goes through, without the weights."""
        sizes: dict[int, int] = {
            each["index"]: int(np.prod(each["shape"], dtype=np.int64)) * np.dtype(each["dtype"]).itemsize
            for each in self._interpreter.get_tensor_details()
        }
        steps = [
            ({int(each) for each in op["inputs"] if each >= 0}, {int(each) for each in op["outputs"]})
            for op in self._interpreter._get_ops_details()
        ]
        last = {index: at for at, (taken, _) in enumerate(steps) for index in taken}
        last |= {each["index"]: len(steps) for each in self._interpreter.get_output_details()}
        living: set[int] = {each["index"] for each in self._inputs}
        peak = sum(sizes[each] for each in living)
        for at, (_, made) in enumerate(steps):
            living |= made
            peak = max(peak, sum(sizes[each] for each in living))
            living = {each for each in living if last.get(each, -1) > at}
        return peak


def _frozen(model: Any) -> Any:
    """The model as a graph whose weights are constants: the converter cannot calibrate variables."""
    tf = tensorflow()
    trainable = [each.numpy() for each in model.trainable_variables]
    others = [each.numpy() for each in model.non_trainable_variables]

    def call(*inputs: Any) -> Any:
        packed = inputs[0] if len(inputs) == 1 else list(inputs)
        constants = [tf.constant(each) for each in trainable], [tf.constant(each) for each in others]
        outputs, _ = model.stateless_call(*constants, packed, training=False)
        return outputs

    specs = [tf.TensorSpec((1, *each.shape[1:]), each.dtype, name=f"args_{at}") for at, each in enumerate(model.inputs)]
    return tf.function(call, input_signature=specs, autograph=False).get_concrete_function()


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the converter's C++ chatter off the terminal; what goes wrong it also raises."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    with tempfile.TemporaryFile() as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
