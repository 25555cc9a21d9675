"""A batch worked through in slices: one loop around one traced function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow

Work = Callable[[Any, Any, Any], dict[str, Any]]
"""From a slice, its share of the samples and its first row to `sum`, `latest` and `rows`: nested tensors that are added
up, taken from the last slice, and put behind each other."""


@dataclass
class Slices:
    """The slices of a batch: nested tensors with samples along their first dimension, `None` where there is nothing."""

    batch: Any
    size: int
    jit: bool = False
    """Whether XLA compiles the loop."""

    def __post_init__(self) -> None:
        tf = tensorflow()
        leaves = [each for each in tf.nest.flatten(self.batch) if each is not None]
        for each in leaves:
            if not tf.is_tensor(each) or not hasattr(each, "shape") or each.shape.rank == 0:
                raise InputError(
                    f"micro_batch slices dense tensors along their samples; the data has a {type(each).__name__} of "
                    f"shape {getattr(each, 'shape', None)}. Make it dense in the pipeline, or plan without micro_batch."
                )
        self.known_count: int | None = next((each.shape[0] for each in leaves if each.shape[0] is not None), None)
        self.count = tf.shape(leaves[0])[0] if self.known_count is None else tf.constant(self.known_count)

    def run(self, work: Work) -> dict[str, Any]:
        """Work through all slices; see `Work` for what comes together how."""
        tf = tensorflow()
        function = tf.function(work, autograph=False).get_concrete_function(
            tf.nest.map_structure(_any_number_of_rows, self.batch),
            tf.TensorSpec((), tf.float64),
            tf.TensorSpec((), tf.int32),
        )
        made = function.structured_outputs
        turns = self.count // self.size

        def one(start: Any, rows: Any) -> dict[str, Any]:
            part = tf.nest.map_structure(lambda each: _rows(each, start, rows), self.batch)
            flat = [each for each in tf.nest.flatten((part, self._share(rows), start)) if each is not None]
            found: dict[str, Any] = tf.nest.pack_sequence_as(made, tf.nest.flatten(function(*flat)))
            return found

        def turn(index: Any, total: Any, _latest: Any, arrays: Any) -> tuple[Any, ...]:
            found = one(index * self.size, self.size)
            total = tf.nest.map_structure(tf.add, total, found["sum"])
            rows = tf.nest.flatten(found["rows"])
            arrays = [array.write(index, each) for array, each in zip(arrays, rows, strict=True)]
            return index + 1, total, found["latest"], arrays

        zeros = {key: tf.nest.map_structure(_zeros, made[key]) for key in ("sum", "latest")}
        kept = tf.nest.flatten(made["rows"])

        def in_slices() -> dict[str, Any]:
            arrays = [tf.TensorArray(x.dtype, size=turns, element_shape=[self.size, *x.shape[1:]]) for x in kept]
            done, total, latest, arrays = tf.while_loop(
                lambda index, *_: index < turns,
                turn,
                (tf.constant(0), zeros["sum"], zeros["latest"], arrays),
                parallel_iterations=1,
            )
            return self._with_remainder(one, made, total, latest, [_joined(array.stack()) for array in arrays], done)

        def at_once() -> dict[str, Any]:
            return one(tf.constant(0), self.count)

        if self.known_count is not None:
            return in_slices() if self.known_count >= self.size else at_once()
        if not self.jit:
            return in_slices()
        # XLA knows the batch size, and would compile a loop over slices larger than the batch, too.
        found: dict[str, Any] = tf.switch_case(tf.cast(turns > 0, tf.int32), [at_once, in_slices])
        return found

    def _with_remainder(
        self, one: Any, made: Any, total: Any, latest: Any, rows: list[Any], done: Any
    ) -> dict[str, Any]:
        tf = tensorflow()
        left = self.count % self.size

        def nothing() -> dict[str, Any]:
            return {"sum": total, "latest": latest, "rows": rows}

        def remainder() -> dict[str, Any]:
            # Its place comes from the loop, so that it does not run beside it.
            found = one(done * self.size, left)
            last = tf.nest.flatten(found["rows"])
            return {
                "sum": tf.nest.map_structure(tf.add, total, found["sum"]),
                "latest": found["latest"],
                "rows": [tf.concat(each, 0) for each in zip(rows, last, strict=True)],
            }

        if self.known_count is None:
            # XLA compiles only the branch that is taken, because the batch size is known there.
            result = tf.switch_case(tf.cast(left > 0, tf.int32), [nothing, remainder])
        else:
            result = remainder() if self.known_count % self.size else nothing()
        return {**result, "rows": tf.nest.pack_sequence_as(made["rows"], result["rows"])}

    def _share(self, rows: Any) -> Any:
        tf = tensorflow()
        return tf.cast(rows, tf.float64) / tf.cast(self.count, tf.float64)


def _any_number_of_rows(tensor: Any) -> Any:
    return None if tensor is None else tensorflow().TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def _rows(tensor: Any, start: Any, rows: Any) -> Any:
    if tensor is None:
        return None
    tf = tensorflow()
    rest = [-1 if each is None else each for each in tensor.shape[1:]]
    return tf.slice(tensor, tf.stack([start, *[0] * len(rest)]), [rows, *rest])


def _joined(stacked: Any) -> Any:
    """Turns and rows as one dimension."""
    tf = tensorflow()
    shape = tf.shape(stacked)
    return tf.reshape(stacked, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))


def _zeros(tensor: Any) -> Any:
    return tensorflow().zeros(tensor.shape, tensor.dtype)
