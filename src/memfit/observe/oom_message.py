"""What the text of an out-of-memory error says: who asked for how much. Needs no TensorFlow.

TensorFlow, XLA, cuDNN, CUDA and NumPy each have their own words for it (`tests/unit/observe/test_oom_messages.py`
has them all); what a text does not say is `None`.
"""

import math
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfit.errors import SizeError
from memfit.units import parse_size

_TENSOR = re.compile(r"OOM when allocating (?:temporary )?tensor with shape\[([\d,]*)\](?: and type (\w+))?")
_ARRAY = re.compile(r"Unable to allocate [\d.]+ \w+ for an array with shape \(([\d, ]*)\) and data type (\w+)")
_CONSTANT = re.compile(
    r"Cannot parse tensor from proto.*?dtype: DT_(\w+)\s*tensor_shape \{((?:\s*dim \{[^}]*\})*)", re.DOTALL
)
# Exact bytes where the text has them, as in "2.00GiB (2147483648 bytes)", before the rounded number.
_EXACT = re.compile(
    r"alloc\w*(?: request for)? [\d.]+ ?[KMGT]i?B? \((?:rounded to )?(\d+) ?(?:B|bytes)?\)", re.IGNORECASE
)
_ROUNDED = re.compile(r"alloc\w* ([\d.]+) ?(bytes|[KMGT]i?B)", re.IGNORECASE)
_DETECTED = re.compile(r"Detected at node '?([^\s']+?)'? defined at")
_NODE = re.compile(r"\[\[\{?\{?node ([^\s}]+)")
_REQUESTED_BY = re.compile(r"requested by op (\S+)")
_EAGER = re.compile(r"\[Op:(?!__)(\w+)|__wrapped__(\w+?)_device_|in order to run (\w+):")
_LAYER_CLASS = re.compile(r"Exception encountered when calling (\w+)\.call\(\)")
_NAMED_LAYER = re.compile(r"Exception encountered when calling layer ['\"]([^'\"]+)['\"]")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_DEVICE = re.compile(r"device:(GPU|CPU):(\d+)|(GPU)_(\d+)_bfc|(device ordinal) (\d+)", re.IGNORECASE)
# A whole step compiled by XLA is one operation, and its name says nothing.
_COMPILED = re.compile(r"(?:^|/)(?:StatefulPartitionedCall|PartitionedCall|XlaLaunch|cluster)\w*$|_XlaRun|_XlaCompile")
_NO_LAYERS = ("compile_loss", "compile_metrics", "loss", "metrics")
_CALLS = re.compile(r"^(?:gradient_tape|(?:Stateful)?PartitionedCall(?:_\d+)?)$")
_NUMBERED = re.compile(r"_\d+$")

_BITS = re.compile(r"(?:u?int|b?float|complex)(\d+)")
_TYPE_BYTES = {"float": 4, "half": 2, "double": 8, "bool": 1}
_MOST = 2**63 - 1
_MEMFIT = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]|^<frozen|[/\\]ipykernel_launcher"
)


@dataclass(frozen=True)
class Request:
    """The allocation that could not be had, as far as the text tells."""

    bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    """The node's name in the step; `None` where XLA compiled it or it ran eagerly."""
    op_type: str | None = None
    layer_class: str | None = None
    """The class of the layer that was running eagerly."""
    layer: str | None = None
    """The layer's name, where the text says it outright."""
    compiled: bool = False
    """Whether the whole step asked, as XLA compiled it."""
    device: str | None = None
    called_at: tuple[str, int] | None = None
    """The user's innermost file and line on the way there."""
    files: tuple[str, ...] = ()
    """The user's files on the way there."""


def read_message(texts: Sequence[str], frames: Iterable[tuple[str, int]] = ()) -> Request:
    """Read the texts of an error and its causes.

    Args:
        texts: What each says.
        frames: Files and lines of the traceback, outermost first, for texts without a stack of their own.
    """
    text = "\n".join(texts)
    shape, dtype = _tensor(text)
    # The allocator's own words stand last, after the stack.
    nodes = [*_DETECTED.findall(text), *_REQUESTED_BY.findall(text), *_NODE.findall(text)]
    named = [node for node in nodes if not _COMPILED.search(node)]
    eager = next((next(filter(None, found)) for found in _EAGER.findall(text)), None)
    own = list(users_frames((file, int(line)) for file, line in _FRAME.findall(text)))
    own = own or list(users_frames(frames))
    op = named[-1] if named else None
    layer_class, layer = _LAYER_CLASS.search(text), _NAMED_LAYER.search(text)
    return Request(
        bytes=_asked(text, shape, dtype),
        shape=shape,
        dtype=dtype,
        op=op,
        op_type=_op_type(op) if op else eager,
        layer_class=layer_class[1] if layer_class else None,
        layer=layer[1] if layer else None,
        compiled=bool(nodes) and not named,
        device=_device(text),
        called_at=own[-1] if own else None,
        files=tuple(dict.fromkeys(file for file, _ in own)),
    )


def who_asked(texts: Sequence[str]) -> dict[str, Any]:
    """Operation, layer and size of a request, as far as the texts say it, as a record has them."""
    asked = read_message(texts)
    op = asked.op or asked.op_type
    return {"op": op, "layer": asked.layer or guessed_layer(op or ""), "asked_bytes": asked.bytes}


def guessed_layer(op: str) -> str | None:
    """The layer in a node's name where no model says what its layers are: `net_1/conv_1/Conv2D` is of `conv`."""
    scopes = [scope for scope in op.split("/")[:-1] if not _CALLS.match(scope)]
    if len(scopes) < 2 or scopes[0] in _NO_LAYERS:
        return None
    return _NUMBERED.sub("", scopes[1])


def users_frames(frames: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Those of a stack that are neither Python's, a library's nor memfit's."""
    for file, line in frames:
        if not _INSTALLED.search(file) and not file.startswith((_MEMFIT, _LIBRARY)):
            yield file, line


def type_bytes(dtype: str) -> int | None:
    """The size of a value of TensorFlow's or NumPy's type name."""
    bits = _BITS.fullmatch(dtype)
    return int(bits[1]) // 8 if bits else _TYPE_BYTES.get(dtype)


def _tensor(text: str) -> tuple[tuple[int, ...] | None, str | None]:
    if (constant := _CONSTANT.search(text)) is not None:
        return tuple(int(size) for size in re.findall(r"size: (\d+)", constant[2])), constant[1].lower()
    found = _TENSOR.search(text) or _ARRAY.search(text)
    if found is None:
        return None, None
    return tuple(int(size) for size in found[1].replace(" ", "").split(",") if size), found[2]


def _asked(text: str, shape: tuple[int, ...] | None, dtype: str | None) -> int | None:
    if shape is not None and dtype is not None and (size := type_bytes(dtype)) is not None:
        asked = math.prod(shape) * size
        return asked if asked <= _MOST else None
    exact = [int(size) for size in _EXACT.findall(text)]
    # Where every kernel of a convolution was refused its scratch memory, the least would have been enough.
    return min(exact or _rounded(text), default=None)


def _rounded(text: str) -> list[int]:
    sizes = []
    for number, unit in _ROUNDED.findall(text):
        try:
            sizes.append(parse_size(f"{number} {'' if unit.lower() == 'bytes' else unit}"))
        except SizeError:
            continue
    return sizes


def _op_type(op: str) -> str:
    """The last part of a node's name, without what TensorFlow's optimiser and a second use put behind it."""
    return _NUMBERED.sub("", op.rpartition("/")[2].partition("-")[0])


def _device(text: str) -> str | None:
    # The last one: a tensor that cannot be copied is said to come "from CPU:0 to GPU:0".
    for found in reversed(list(_DEVICE.finditer(text))):
        return f"{(found[1] or 'GPU').upper()}:{found[2] or found[4] or found[6]}"
    return None
