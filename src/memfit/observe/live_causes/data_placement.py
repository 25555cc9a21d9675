"""Data that lies where memory is scarce: whole arrays on the device, caches in host memory."""

import math
from collections.abc import Iterator
from typing import Any

from memfit.framework import tensorflow
from memfit.hardware.host import host_memory
from memfit.observe.events import Finding, Severity
from memfit.observe.live_causes.view import View, on_device, tensor_bytes
from memfit.observe.living import owner_of
from memfit.units import MIB, format_size

# More rows than a batch has, and a size worth moving.
_ROWS, _LEAST, _LEAST_SHARE = 256, 32 * MIB, 0.05
_CACHE_SHARE, _MUCH = 0.25, 0.75
_MOST_LOOKED_AT = 4


def find(view: View) -> Iterator[Finding]:
    """Arrays on the device, and caches in host memory."""
    yield from _on_device(view)
    yield from _cached(view)


def _on_device(view: View) -> Iterator[Finding]:
    device = view.device
    if device is None:
        return
    least = max(_LEAST, _LEAST_SHARE * (device.limit or 0))
    large = [tensor for tensor in view.living.tensors if _is_data(tensor, least) and on_device(tensor, device.device)]
    large.sort(key=tensor_bytes, reverse=True)
    for tensor in large[:_MOST_LOOKED_AT]:
        where = owner_of(tensor, (view.living.tensors, large))
        # On a CPU the data sets' own arrays are where they belong.
        if where is None and not device.device.startswith("GPU"):
            continue
        size = tensor_bytes(tensor)
        yield Finding(
            at=view.at,
            id="data-on-device",
            title=f"{format_size(size)} of data lie on {device.device} as a whole",
            evidence=f"{f'`{where}`' if where else 'A data set'} is a tensor of shape {tuple(tensor.shape)} and type "
            f"{tensor.dtype.name} on {device.device}"
            + (f", {100 * size / device.limit:.0f} % of its {format_size(device.limit)}." if device.limit else "."),
            cause="An array that is made a tensor is put on the device whole; a step needs one batch of it.",
            fix='with tf.device("CPU:0"): dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)'
            "   # with x and y as NumPy arrays",
            severity="warning",
        )
        return


def _is_data(tensor: Any, least: float) -> bool:
    shape = tensor.shape
    return bool(shape.rank) and shape[0] is not None and shape[0] >= _ROWS and tensor_bytes(tensor) >= least


def _cached(view: View) -> Iterator[Finding]:
    total = host_memory().ceiling
    caches = [each for each in view.living.datasets if type(each).__name__ == "CacheDataset" and _in_memory(each)]
    sizes = [size for cache in caches if (size := _size(cache)) is not None]
    size = max(sizes, default=0)
    if not total or size < _CACHE_SHARE * total:
        return
    severity: Severity = "problem" if size > _MUCH * total else "warning"
    yield Finding(
        at=view.at,
        id="dataset-cache-in-ram",
        title=f"A data set caches {format_size(size)} in host memory",
        evidence=f"Dataset.cache() without a file name, for {format_size(size)} of elements; the machine has "
        f"{format_size(total)}.",
        cause="Without a file name the whole data set stays in host memory after the first epoch, decoded.",
        fix='dataset = dataset.cache("train.cache")   # on disk; or cache before decoding',
        severity=severity,
    )


def _in_memory(cache: Any) -> bool:
    return bytes(cache._filename.numpy()) == b""


def _size(dataset: Any) -> int | None:
    """The bytes of all elements; `None` where their number or a shape is not known."""
    count = int(dataset.cardinality())
    if count < 0:
        return None
    total = 0
    for spec in tensorflow().nest.flatten(dataset.element_spec):
        shape = getattr(spec, "shape", None)
        if shape is None or shape.rank is None or spec.dtype.name in ("string", "variant", "resource"):
            return None
        dimensions = list(shape)
        if dimensions and dimensions[0] is None:
            dimensions[0] = _batch_size(dataset)
        if None in dimensions:
            return None
        total += math.prod(dimensions) * spec.dtype.size
    return total * count


def _batch_size(dataset: Any) -> int | None:
    """What a data set was batched with, somewhere before."""
    while dataset is not None:
        size = getattr(dataset, "_batch_size", None)
        if size is not None:
            return int(size)
        dataset = getattr(dataset, "_input_dataset", None)
    return None
