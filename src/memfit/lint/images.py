"""Arrays that hold every image of a folder: where they are put together, and what is made of them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from memfit.lint.expressions import argument, method_name
from memfit.lint.module import Module, once
from memfit.lint.scopes import LOOPS, FunctionNode, LoopNode

_READERS = frozenset({
    "cv2.imread", "keras.utils.load_img", "keras.utils.img_to_array", "PIL.Image.open", "matplotlib.pyplot.imread",
    "matplotlib.image.imread", "skimage.io.imread", "imageio.imread", "imageio.v2.imread", "imageio.v3.imread",
    "scipy.misc.imread", "scipy.ndimage.imread", "tifffile.imread", "tensorflow.io.decode_jpeg",
    "tensorflow.io.decode_png", "tensorflow.io.decode_image", "tensorflow.image.decode_jpeg",
    "tensorflow.image.decode_png", "tensorflow.image.decode_image", "nibabel.load", "pydicom.dcmread",
    "pydicom.read_file",
})  # fmt: skip
_STACKS = frozenset({
    "numpy.array", "numpy.asarray", "numpy.stack", "numpy.concatenate", "numpy.vstack", "tensorflow.stack",
    "tensorflow.concat", "tensorflow.convert_to_tensor", "tensorflow.constant",
})  # fmt: skip
_LISTINGS = frozenset({
    "os.listdir", "os.walk", "os.scandir", "glob.glob", "glob.iglob", "imutils.paths.list_images",
    "tensorflow.io.gfile.glob", "tensorflow.io.gfile.listdir",
})  # fmt: skip
_PATH_METHODS = ("glob", "rglob", "iterdir", "iterrows", "itertuples")
# Functions that work on a few images at a time, or whose results nobody trains on.
_PARTS = re.compile(
    r"batch|getitem|generat|predict|test|infer|demo|show|plot|display|visual|sample|example", re.IGNORECASE
)
# What lists of files are called where their origin is not seen.
_FILES = re.compile(r"^(?!.*(batch|test|sample|few|demo)).*(paths|files|file_?names|file_?list)$", re.IGNORECASE)
_DEEPEST = 6


@dataclass(frozen=True)
class ImageArray:
    """An array of all images: the loop that reads them, what they are collected in, the call that makes the array."""

    loop: LoopNode | ast.ListComp
    read: ast.Call
    name: str | None
    stacked: ast.Call


@once
def image_arrays(module: Module) -> Iterator[ImageArray]:
    """Every array of the file that is put together from images read in a loop over files."""
    if any(module.callee(call) in _READERS for call in module.calls_to(*_words(_READERS))):
        for each in (*_stacked(module), *_filled_in(module)):
            if not _reads_a_part(module, each.loop, each.stacked):
                yield each


def _words(names: frozenset[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in names}


def _stacked(module: Module) -> Iterator[ImageArray]:
    """`np.array(images)` of a list that was appended to, or of a comprehension."""
    for call in module.calls_to(*_words(_STACKS)):
        if module.callee(call) not in _STACKS or not call.args:
            continue
        given = call.args[0]
        if isinstance(given, ast.Name):
            found = next(_appended(module, given), None)
            if found is not None:
                yield ImageArray(*found, given.id, call)
                continue
        listed = module.settled(given)
        if isinstance(listed, ast.ListComp) and _lists_files(module, listed.generators[0].iter):
            read = _read(module, listed.elt, listed)
            if read is not None:
                yield ImageArray(listed, read, given.id if isinstance(given, ast.Name) else None, call)


def _appended(module: Module, name: ast.Name) -> Iterator[tuple[LoopNode, ast.Call]]:
    """The loops over files in which images are appended to a list of that name."""
    scope = module.scope(name)
    for call in module.calls_to("append"):
        if (
            call.args
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == name.id
            and module.scope(call) is scope
            and module.before(call, name)
        ):
            yield from _read_in_loop(module, call, call.args[0])


def _filled_in(module: Module) -> Iterator[ImageArray]:
    """`images = np.zeros((len(paths), ...))`, and `images[number] = ...` in a loop."""
    for assign in module.outline.items:
        target = assign.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        binding = module.binding(target.value)
        made = None if binding is None else binding.value
        if not isinstance(made, ast.Call) or module.callee(made) not in ("numpy.zeros", "numpy.empty", "numpy.ndarray"):
            continue
        for loop, read in _read_in_loop(module, assign, assign.value):
            if not module.inside(made, loop):
                yield ImageArray(loop, read, target.value.id, made)


def _read_in_loop(module: Module, node: ast.AST, value: ast.expr) -> Iterator[tuple[LoopNode, ast.Call]]:
    around = list(module.loops(node))
    if around and any(_over_files(module, loop) for loop in around):
        read = _read(module, value, around[-1])
        if read is not None:
            yield around[-1], read


def _over_files(module: Module, loop: LoopNode) -> bool:
    """Whether a loop goes over the files of a folder or the rows of a table."""
    if isinstance(loop, ast.While):
        return False
    return _lists_files(module, loop.iter)


def _lists_files(module: Module, node: ast.expr, depth: int = _DEEPEST) -> bool:
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        made = module.value(node)
        if made is None:
            return _FILES.search(node.id) is not None
        return _lists_files(module, made, depth - 1)
    if isinstance(node, ast.Call):
        name = module.callee(node)
        if name in _LISTINGS or (name is None and method_name(node) in _PATH_METHODS):
            return True
        # random.sample(paths, 100) is a part of them.
        return "sample" not in (name or "") and any(_lists_files(module, each, depth - 1) for each in node.args)
    if isinstance(node, ast.Subscript):  # paths[:10] is a few of them, next(os.walk(path))[2] is all
        return not isinstance(node.slice, ast.Slice) and _lists_files(module, node.value, depth - 1)
    if isinstance(node, ast.ListComp):
        return _lists_files(module, node.generators[0].iter, depth - 1)
    if isinstance(node, ast.BinOp):
        return _lists_files(module, node.left, depth - 1)
    return False


def _read(module: Module, node: ast.expr, loop: ast.AST, depth: int = _DEEPEST) -> ast.Call | None:
    """The call that reads an image, where what is appended comes from one in the same loop."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            if module.callee(each) in _READERS:
                return each
            function = module.local_function(each.func)
            if function is not None and depth and _returns_an_image(module, function):
                return each
        if isinstance(each, ast.Name) and depth:
            binding = module.binding(each)
            if (
                binding is not None
                and binding.kind == "assign"
                and binding.value is not None
                and module.inside(binding.node, loop)
                and (found := _read(module, binding.value, loop, depth - 1)) is not None
            ):
                return found
    return None


def _returns_an_image(module: Module, function: FunctionNode) -> bool:
    return any(_read(module, each, function, 3) is not None for each in module.returned(function))


def _reads_a_part(module: Module, loop: ast.AST, stacked: ast.Call) -> bool:
    """Whether this is a batch, a few images to look at, or what a generator gives out piece by piece."""
    for function in module.functions(loop):
        if isinstance(function, ast.Lambda):
            continue
        if _PARTS.search(function.name):
            return True
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function)):
            return True
    # Results of a prediction are what the loop is for.
    if any(
        isinstance(each, ast.Call) and method_name(each) in ("predict", "predict_on_batch") for each in ast.walk(loop)
    ):
        return True
    # Stacked again for every folder or every batch of an outer loop: a part, where it is not kept.
    return any(isinstance(each, LOOPS) for each in module.loops(loop)) and module.inside(
        stacked, next(module.loops(loop))
    )


def holds_images(module: Module, node: ast.expr, arrays: tuple[ImageArray, ...], depth: int = _DEEPEST) -> bool:
    """Whether an expression is one of those arrays, or was made of one: scaled, split, given back by a function."""
    stacked = {each.stacked for each in arrays}
    return _holds(module, node, stacked, depth)


def _holds(module: Module, node: ast.expr | None, stacked: set[ast.Call], depth: int) -> bool:
    if node is None or depth == 0:
        return False
    if isinstance(node, ast.Name):
        binding = module.binding(node)
        if binding is None or binding.value is None or binding.kind not in ("assign", "unpack"):
            return binding is not None and binding.kind == "augmented" and _before(module, node, stacked, depth)
        if binding.kind == "unpack":
            return _part_holds(module, binding.value, binding.path, stacked, depth - 1)
        return _holds(module, binding.value, stacked, depth - 1)
    if isinstance(node, ast.Call):
        if node in stacked:
            return True
        name = module.callee(node)
        if name in _STACKS or (name or "").startswith("numpy.") or method_name(node) in ("astype", "reshape", "copy"):
            inner = node.func.value if name is None and isinstance(node.func, ast.Attribute) else None
            given = inner if inner is not None else (node.args[0] if node.args else None)
            return _holds(module, given, stacked, depth - 1)
        function = module.local_function(node.func)
        return function is not None and any(
            _holds(module, each, stacked, depth - 1) for each in module.returned(function)
        )
    if isinstance(node, ast.BinOp):
        return _holds(module, node.left, stacked, depth - 1)
    if isinstance(node, ast.Subscript):  # every index but one number leaves most of it
        return not isinstance(node.slice, ast.Constant) and _holds(module, node.value, stacked, depth - 1)
    return False


def _before(module: Module, name: ast.Name, stacked: set[ast.Call], depth: int) -> bool:
    """`x /= 255` changes what `x` was before."""
    for each in reversed(module.bindings(name)):
        if each.kind == "assign" and module.before(each.node, name):
            return _holds(module, each.value, stacked, depth - 1)
    return False


def _part_holds(module: Module, node: ast.expr, path: tuple[int, ...], stacked: set[ast.Call], depth: int) -> bool:
    """`x_train` of `train_test_split(x, y)`, or `x` of a function that returns `x, y`."""
    if not isinstance(node, ast.Call) or not path:
        return False
    if (module.callee(node) or "").endswith("train_test_split"):
        index = path[0] // 2
        return len(node.args) > index and _holds(module, node.args[index], stacked, depth)
    function = module.local_function(node.func)
    if function is None:
        return False
    tuples = (each.elts for each in module.returned(function) if isinstance(each, ast.Tuple | ast.List))
    return len(path) == 1 and any(
        len(each) > path[0] and _holds(module, each[path[0]], stacked, depth) for each in tuples
    )


def fit_arrays(module: Module, call: ast.Call, arrays: tuple[ImageArray, ...]) -> ast.expr | None:
    """The argument of a `fit` that is an array of all images."""
    data = argument(call, "x", 0)
    return data if data is not None and arrays and holds_images(module, data, arrays) else None
