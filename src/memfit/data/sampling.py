"""What a sample of the files tells: how large they are on disk, unpacked and as they are fed, and how long it takes."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memfit.data.broken import said
from memfit.data.facts import Broken, Measured
from memfit.errors import InputError
from memfit.framework import tensorflow

# Enough for a mean within a few percent; where there are no more files, every broken one is known before training.
SAMPLE = 64


@dataclass(frozen=True)
class Source:
    """Where samples come from and what they become."""

    files: tuple[tuple[str, ...], ...]
    """The files of each sample: the picture's, or the picture's and its mask's."""
    decode: Callable[[Any], tuple[Any, ...]]
    """The bytes of a sample's files to its parts, in a graph."""
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the parts, all of them uint8."""
    unpacked: Callable[[Any], Any]
    """The bytes a sample's picture takes when it is decoded and not yet resized, in a graph."""

    @property
    def sample_bytes(self) -> int:
        """The bytes of a sample as it is fed."""
        return sum(math.prod(shape) for shape in self.shapes)


def measure(
    source: Source, seed: int | None, *, on_error: str, step: Callable[[], None] = lambda: None
) -> tuple[Measured, tuple[Any, ...]]:
    """Read and decode a sample of the files, drawn with the seed.

    Args:
        source: The files.
        seed: Chooses the sample.
        on_error: "raise" to stop at the first broken file.
        step: Called after each file, for progress.

    Returns:
        What it told, and one sample's parts as arrays.

    Raises:
        InputError: If a file is broken and `on_error` is "raise", or if all of them are.
    """
    tf = tensorflow()
    chosen = sorted(random.Random(seed).sample(range(len(source.files)), min(SAMPLE, len(source.files))))
    with tf.device("CPU:0"):
        encoded: list[int] = []
        unpacked: list[int] = []
        reading: list[float] = []
        decoding: list[float] = []
        broken: list[Broken] = []
        example: tuple[Any, ...] = ()
        for index in chosen:
            paths = source.files[index]
            try:
                began = time.perf_counter()
                contents = tuple(tf.io.read_file(path) for path in paths)
                read = time.perf_counter()
                parts = source.decode(contents)
                decoded = time.perf_counter()
                size = int(source.unpacked(contents))
            except tf.errors.OpError as error:
                broken.append(Broken(" + ".join(paths), said(error)))
                if on_error == "raise":
                    break
            else:
                example = example or tuple(part.numpy() for part in parts)
                encoded.append(sum(int(tf.strings.length(each)) for each in contents))
                unpacked.append(size)
                reading.append(read - began)
                decoding.append(decoded - read)
            step()
    refuse_broken(broken, on_error=on_error, all_of_them=not encoded)
    measured = Measured(
        sampled=len(chosen),
        encoded_bytes=sum(encoded) // len(encoded),
        decoded_bytes=sum(unpacked) // len(unpacked),
        largest_bytes=max(map(sum, zip(encoded, unpacked, strict=True))),
        sample_bytes=source.sample_bytes,
        read_seconds=_median(reading),
        decode_seconds=_median(decoding),
        broken=tuple(broken),
    )
    return measured, example


def refuse_broken(broken: Sequence[Broken], *, on_error: str, all_of_them: bool) -> None:
    """Stop where the user asked for it, or where nothing is left."""
    if broken and on_error == "raise":
        raise InputError(f'cannot read {broken[0].path}: {broken[0].reason}. Remove it, or pass on_error="skip".')
    if all_of_them:
        raise InputError(
            f"none of {len(broken)} files can be read; the first is {broken[0].path}: {broken[0].reason}. "
            "Expected JPEG, PNG, GIF, BMP or WebP."
        )


def _median(values: Sequence[float]) -> float:
    """The first one traces the function and would spoil a mean."""
    return sorted(values)[len(values) // 2]
