"""`tf.data` pipelines as an ordered list of steps, also where they are put together over several statements."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memfit.lint.expressions import argument, method_name
from memfit.lint.keras_code import fit_data, fits, parameters
from memfit.lint.module import Module, once
from memfit.lint.scopes import FunctionNode

METHODS = frozenset(
    "apply as_numpy_iterator batch bucket_by_sequence_length cache concatenate enumerate filter flat_map "
    "group_by_window interleave map options padded_batch prefetch ragged_batch rebatch repeat shard shuffle skip "
    "snapshot take unbatch window with_options zip".split()
)
BATCHING = ("batch", "padded_batch", "ragged_batch", "bucket_by_sequence_length")
# An object with one of these methods is a data set, whatever it came from.
_TELLING = ("prefetch", "padded_batch", "interleave", "with_options", "unbatch")
_SOURCES = ("tensorflow.data.", "tensorflow_datasets.")
FROM_FOLDER = tuple(f"keras.utils.{kind}_dataset_from_directory" for kind in ("image", "text", "audio"))
_RANDOM = (
    "tensorflow.image.random_",
    "tensorflow.image.stateless_random_",
    "tensorflow.random.",
    "keras.layers.Random",
)
_DECODERS = frozenset(
    f"tensorflow.{where}.decode_{kind}" for where in ("io", "image") for kind in "jpeg png image bmp gif".split()
) | {"tensorflow.io.decode_and_crop_jpeg", "tensorflow.image.decode_and_crop_jpeg"}
_RESIZING = ("tensorflow.image.resize", "keras.layers.Resizing", "tensorflow.image.resize_with_pad")
_DEEPEST = 12


@dataclass(frozen=True)
class Step:
    """One method called on a data set."""

    method: str
    call: ast.Call

    @property
    def word(self) -> ast.AST:
        """The name of the method, as a place to point at: the call begins where the whole chain begins."""
        line, column = self.call.func.end_lineno, self.call.func.end_col_offset
        if line is None or column is None:
            return self.call
        start = column - len(self.method.encode())
        return ast.Name(self.method, ast.Load(), lineno=line, col_offset=start, end_lineno=line, end_col_offset=column)


@dataclass(frozen=True)
class Pipeline:
    """A data set from where it comes from to the last step that is seen."""

    source: ast.expr
    source_name: str | None
    steps: tuple[Step, ...]

    def before(self, step: Step) -> tuple[Step, ...]:
        """The steps before one of them."""
        return self.steps[: self.steps.index(step)]

    @property
    def batched_at_source(self) -> bool:
        """Whether it comes in batches, as from `image_dataset_from_directory`."""
        if self.source_name not in (*FROM_FOLDER, "keras.utils.timeseries_dataset_from_array"):
            return False
        size = argument(self.source, "batch_size") if isinstance(self.source, ast.Call) else None
        return not (isinstance(size, ast.Constant) and size.value is None)

    @property
    def is_sure(self) -> bool:
        """Whether it is a `tf.data` pipeline beyond doubt."""
        if self.source_name is not None and (
            self.source_name.startswith(_SOURCES) or self.source_name.endswith("_dataset_from_directory")
        ):
            return True
        methods = {step.method for step in self.steps}
        return any(method in methods for method in _TELLING) or any(
            keyword.arg in ("num_parallel_calls", "drop_remainder", "reshuffle_each_iteration", "padded_shapes")
            for step in self.steps
            for keyword in step.call.keywords
        )


@once
def pipelines(module: Module) -> Iterator[Pipeline]:
    """Every chain of steps of the file, each as far back as it can be followed."""
    for call in module.calls_to(*METHODS):
        if method_name(call) is None or _is_continued(module, call):
            continue
        found = pipeline(module, call)
        if found is not None and found.steps and found.is_sure:
            yield found


@once
def trained_on(module: Module) -> Iterator[tuple[ast.Call, Pipeline]]:
    """The pipelines that go into `fit` as training data, with the call."""
    for call in fits(module):
        data = fit_data(call)
        found = None if data is None else pipeline(module, data)
        if found is not None and found.is_sure:
            yield call, found


def _is_continued(module: Module, call: ast.Call) -> bool:
    above = module.parent(call)
    following = module.parent(above) if isinstance(above, ast.Attribute) and above.attr in METHODS else None
    return isinstance(following, ast.Call) and following.func is above


def pipeline(module: Module, node: ast.expr) -> Pipeline | None:
    """The pipeline behind an expression; `None` where there is none."""
    steps: list[Step] = []
    current: ast.expr = node
    seen: set[ast.AST] = set()
    while current not in seen:
        seen.add(current)
        if (
            isinstance(current, ast.Call)
            and method_name(current) in METHODS
            and isinstance(current.func, ast.Attribute)
        ):
            if module.dotted(current.func) is None:  # tf.data.Dataset.zip(...) is where one starts
                steps.append(Step(current.func.attr, current))
                current = current.func.value
                continue
        elif isinstance(current, ast.Name | ast.Attribute):
            following = module.value(current)
            if following is not None and following is not current:
                current = following
                continue
            unpacked = _unpacked(module, current)
            if unpacked is not None:
                current = unpacked
                continue
        elif isinstance(current, ast.Call) and (through := _through_function(module, current)) is not None:
            inner, given = through
            steps += reversed(inner)
            current = given
            continue
        elif isinstance(current, ast.Subscript):
            current = current.value
            continue
        break
    name = module.callee(current) if isinstance(current, ast.Call) else None
    if name is None and not steps:
        return None
    return Pipeline(current, name, tuple(reversed(steps)))


def _unpacked(module: Module, node: ast.expr) -> ast.expr | None:
    """The call in `(train, test), info = tfds.load(...)`."""
    if isinstance(node, ast.Name):
        binding = module.binding(node)
        if (
            binding is not None
            and binding.kind == "unpack"
            and module.callee(binding.value) == "tensorflow_datasets.load"
        ):
            return binding.value
    return None


def _through_function(module: Module, call: ast.Call, depth: int = 2) -> tuple[list[Step], ast.expr] | None:
    """The steps of `def prepare(data): return data.map(...)`, and what is given to it as `data`."""
    function = module.local_function(call.func)
    if function is None or depth == 0:
        return None
    results = module.returned(function)
    if len(results) != 1:
        return None
    inner: list[Step] = []
    current: ast.expr = results[0]
    for _ in range(_DEEPEST):
        if isinstance(current, ast.Call) and isinstance(current.func, ast.Attribute) and current.func.attr in METHODS:
            inner.append(Step(current.func.attr, current))
            current = current.func.value
        elif isinstance(current, ast.Name):
            binding = module.binding(current)
            if binding is None:
                return None
            if binding.kind == "parameter":
                given = _given(function, call, binding.name)
                return None if given is None else (list(reversed(inner)), given)
            if binding.kind != "assign" or binding.value is None:
                return None
            current = binding.value
        else:
            return None
    return None


def _given(function: FunctionNode, call: ast.Call, parameter: str) -> ast.expr | None:
    names = parameters(function)
    return argument(call, parameter, names.index(parameter) if parameter in names else None)


# What the function of a `map` does.


def mapped(step: Step) -> ast.expr | None:
    """The function given to `map`."""
    return argument(step.call, "map_func", 0) if step.method == "map" else None


def _called(module: Module, step: Step) -> frozenset[str]:
    given = mapped(step)
    if given is None:
        return frozenset()
    function = module.local_function(given)
    if function is not None:
        return module.called_in(function)
    return frozenset()


def augments(module: Module, step: Step) -> bool:
    """Whether a `map` changes its elements at random: by what it calls, or by its name."""
    given = mapped(step)
    if given is None:
        return False
    if any(name.startswith(_RANDOM) and name != "tensorflow.random.set_seed" for name in _called(module, step)):
        return True
    return any(_is_augmentation(module, each) for each in _applied(module, given))


def _applied(module: Module, given: ast.expr) -> Iterator[ast.expr]:
    """What a function applies to its argument: itself, or what a lambda calls."""
    function = module.local_function(given)
    if function is None:
        yield given
        return
    for each in ast.walk(function):
        if isinstance(each, ast.Call):
            yield each.func


def _is_augmentation(module: Module, node: ast.expr) -> bool:
    """A layer that augments, a `Sequential` of such layers, or something that is called so."""
    made = module.settled(node)
    if isinstance(made, ast.Call):
        name = module.callee(made)
        if name is not None and name.startswith("keras.layers.Random"):
            return True
        if name == "keras.Sequential":
            return any(
                (module.callee(each) or "").startswith("keras.layers.Random")
                for each in ast.walk(made)
                if isinstance(each, ast.Call)
            )
    return False


def decodes(module: Module, step: Step) -> bool:
    """Whether a `map` decodes an image file."""
    return bool(_called(module, step) & _DECODERS)


def resizes(module: Module, step: Step) -> bool:
    """Whether a `map` resizes images."""
    return any(name in _RESIZING for name in _called(module, step))
