"""A batch worked through in slices: one loop around one traced function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.techniques.rehearsal import OTHER_SIZE, ROWS, Rehearsal, RehearsalNeeded

Work = Callable[[Any, Any, Any], dict[str, Any]]
"""From a slice, its share of the samples and its first row to nested tensors: those in `sum` are added up, those in
`latest` are taken from the last slice, those in `rows` (one row per sample) and in `pieces` (any number of rows) are
concatenated."""


@dataclass
class Slices:
    """The slices of a batch: nested tensors with samples along their first dimension, `None` where there is nothing."""

    batch: Any
    size: int
    jit: bool = False
    """Whether XLA compiles the loop."""
    rehearsal: Rehearsal = field(init=False)
    """What is known about sizes inside the work that runs now."""

    def __post_init__(self) -> None:
        tf = tensorflow()
        self._leaves = [each for each in tf.nest.flatten(self.batch) if each is not None]
        for each in self._leaves:
            if not tf.is_tensor(each) or not hasattr(each, "shape") or not each.shape.rank:
                raise InputError(
                    f"micro_batch slices dense tensors along their samples; the data has a {type(each).__name__} of "
                    f"shape {getattr(each, 'shape', None)}. Make it dense in the pipeline, or plan without micro_batch."
                )
        known = (each.shape[0] for each in self._leaves if each.shape[0] is not None)
        self.known_count: int | None = next(known, None)
        self.count = tf.shape(self._leaves[0])[0] if self.known_count is None else tf.constant(self.known_count)

    def run(self, work: Work) -> dict[str, Any]:
        """Work through all slices; see `Work` for how the results are combined."""
        tf = tensorflow()
        function = self._traced(work)
        made = function.structured_outputs
        turns = self.count // self.size

        def one(start: Any, rows: Any) -> dict[str, Any]:
            part = tf.nest.map_structure(lambda each: _rows(each, start, rows), self.batch)
            flat = [each for each in tf.nest.flatten((part, self._share(rows), start)) if each is not None]
            found: dict[str, Any] = tf.nest.pack_sequence_as(made, tf.nest.flatten(function(*flat)))
            return found

        kept = tf.nest.flatten((made["rows"], made["pieces"]))

        def turn(index: Any, total: Any, _latest: Any, arrays: Any) -> tuple[Any, ...]:
            found = one(index * self.size, self.size)
            total = tf.nest.map_structure(tf.add, total, found["sum"])
            written = tf.nest.flatten((found["rows"], found["pieces"]))
            arrays = [array.write(index, each) for array, each in zip(arrays, written, strict=True)]
            return index + 1, total, found["latest"], arrays

        zeros = {key: tf.nest.map_structure(_zeros, made[key]) for key in ("sum", "latest")}

        def in_slices() -> dict[str, Any]:
            arrays = [
                tf.TensorArray(each.dtype, size=turns, element_shape=each.shape, infer_shape=False) for each in kept
            ]
            done, total, latest, arrays = tf.while_loop(
                lambda index, *_: index < turns,
                turn,
                (tf.constant(0), zeros["sum"], zeros["latest"], arrays),
                parallel_iterations=1,
            )
            joined = [self._joined(array) for array in arrays]
            return self._with_remainder(one, made, total, latest, joined, done)

        def at_once() -> dict[str, Any]:
            return one(tf.constant(0), self.count)

        if self.known_count is not None:
            return self._with_known_rows(made, in_slices() if self.known_count >= self.size else at_once())
        if not self.jit and all(each.shape[1:].is_fully_defined() for each in kept):
            return self._with_known_rows(made, in_slices())
        # XLA knows the batch size, and would compile a loop over slices larger than the batch, too. And an empty list
        # of tensors cannot be concatenated unless their sizes are known.
        found = tf.switch_case(tf.cast(turns > 0, tf.int32), [at_once, in_slices])
        return self._with_known_rows(made, found)

    def _traced(self, work: Work) -> Any:
        """The work as a function of a slice with any number of rows."""
        tf = tensorflow()
        unknown = any(size is None for each in self._leaves for size in each.shape[1:])
        self.rehearsal = Rehearsal(one_unknown=not unknown)

        def trace(rows: int | None, other: int | None) -> Any:
            self.rehearsal.begin()
            return tf.function(work, autograph=False).get_concrete_function(
                tf.nest.map_structure(lambda each: _spec(each, rows, other), self.batch),
                tf.TensorSpec((), tf.float64),
                tf.TensorSpec((), tf.int32),
            )

        try:
            return trace(None, None)
        except RehearsalNeeded:
            self.rehearsal.record(True)
            for rows in ROWS:
                trace(rows, OTHER_SIZE)
            self.rehearsal.record(False)
        return trace(None, None)

    def _joined(self, array: Any) -> Any:
        """What all turns made, as one tensor."""
        tf = tensorflow()
        if not self.jit:
            return array.concat()
        stacked = array.stack()
        shape = tf.shape(stacked)
        return tf.reshape(stacked, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))

    def _with_remainder(
        self, one: Any, made: Any, total: Any, latest: Any, joined: list[Any], done: Any
    ) -> dict[str, Any]:
        tf = tensorflow()
        left = self.count % self.size

        def nothing() -> dict[str, Any]:
            return {"sum": total, "latest": latest, "joined": joined}

        def remainder() -> dict[str, Any]:
            # Its place comes from the loop, so that it does not run beside it.
            found = one(done * self.size, left)
            last = tf.nest.flatten((found["rows"], found["pieces"]))
            return {
                "sum": tf.nest.map_structure(tf.add, total, found["sum"]),
                "latest": found["latest"],
                "joined": [tf.concat(each, 0) for each in zip(joined, last, strict=True)],
            }

        if self.known_count is None:
            # XLA compiles only the branch that is taken, because the batch size is known there.
            result = tf.switch_case(tf.cast(left > 0, tf.int32), [nothing, remainder])
        else:
            result = remainder() if self.known_count % self.size else nothing()
        rows, pieces = tf.nest.pack_sequence_as((made["rows"], made["pieces"]), result.pop("joined"))
        return {**result, "rows": rows, "pieces": pieces}

    def _with_known_rows(self, made: Any, found: dict[str, Any]) -> dict[str, Any]:
        """Results with the sizes that are known: losses and metrics look at them."""
        tf = tensorflow()
        for key in ("rows", "pieces"):
            rows = self.known_count if key == "rows" else None
            for tensor, each in zip(tf.nest.flatten(found[key]), tf.nest.flatten(made[key]), strict=True):
                tensor.set_shape([rows, *each.shape[1:]])
        return found

    def _share(self, rows: Any) -> Any:
        tf = tensorflow()
        return tf.cast(rows, tf.float64) / tf.cast(self.count, tf.float64)


def _spec(tensor: Any, rows: int | None, other: int | None) -> Any:
    if tensor is None:
        return None
    sizes = [other if each is None else each for each in tensor.shape[1:]]
    return tensorflow().TensorSpec([rows, *sizes], tensor.dtype)


def _rows(tensor: Any, start: Any, rows: Any) -> Any:
    if tensor is None:
        return None
    tf = tensorflow()
    rest = [-1 if each is None else each for each in tensor.shape[1:]]
    return tf.slice(tensor, tf.stack([start, *[0] * len(rest)]), [rows, *rest])


def _zeros(tensor: Any) -> Any:
    return tensorflow().zeros(tensor.shape, tensor.dtype)
