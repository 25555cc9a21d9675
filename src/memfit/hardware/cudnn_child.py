"""The child process that asks cuDNN which kernels it offers for convolutions, and what workspace each takes.

`python -m memfit.hardware.cudnn_child REQUEST ANSWER` reads a JSON file and writes another. cuDNN 9.8 and later answers
for a GPU that is only described ("deviceless ahead-of-time compilation"). It has a process of its own, since cuDNN ends
the process where it lacks a library.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

# Numbers from cudnn_graph.h, cuDNN 9: descriptors, then attributes, then their types.
_CONVOLUTION, _ENGINE, _ENGINE_CONFIG, _HEURISTICS, _PLAN, _GRAPH, _TENSOR, _DEVICE = 1, 2, 3, 4, 5, 15, 17, 38
_OPERATIONS = {"forward": (10, 700), "filter": (11, 712), "input": (12, 706)}
_COMPUTE_TYPE, _MODE, _DILATIONS, _STRIDES, _POST_PADDING, _PRE_PADDING, _SPATIAL = range(100, 107)
_HEURISTICS_MODE, _HEURISTICS_GRAPH, _HEURISTICS_RESULTS, _HEURISTICS_DEVICE = 200, 201, 202, 204
_CONFIG_ENGINE, _PLAN_CONFIG, _PLAN_WORKSPACE, _PLAN_DEVICE, _GRAPH_OPERATIONS = 300, 401, 402, 407, 801
_ALIGNMENT, _DATA_TYPE, _DIMENSIONS, _TENSOR_STRIDES, _IDENTIFIER, _IS_VIRTUAL = 900, 901, 902, 903, 906, 907
_POINTWISE, _POINTWISE_OPERATION, _POINTWISE_MODE, _POINTWISE_PRECISION, _POINTWISE_FIRST, _ADD = 0, 13, 0, 1, 750, 0
_ENGINE_INDEX, _DEVICE_NUMBER, _DEVICE_JSON = 1301, 2700, 2702
_TYPE_BOOLEAN, _TYPE_POINTWISE = 2, 14
_TYPE_DATA, _TYPE_INT64, _TYPE_DOUBLE, _TYPE_MODE, _TYPE_HEURISTICS = 1, 3, 5, 7, 8
_TYPE_DESCRIPTOR, _TYPE_INT32, _TYPE_CHAR = 15, 23, 24

_DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
_CROSS_CORRELATION = 1
# As XLA and TensorFlow ask for them (cuda_dnn.cc, `CreateOpRunners`): mode B, then what mode A has besides.
_MODES = (1, 3)
_BYTES_ALIGNED = 32


class CudnnError(Exception):
    """A call of cuDNN failed; for a plan it says that the kernel does not do this convolution."""


class Cudnn:
    """The graph API of cuDNN, for a card that is described or that is here.

    Args:
        library: The path of `libcudnn.so.9`.
        device: The description of a card as JSON, or its number.
    """

    def __init__(self, library: str, device: str | int) -> None:
        self._library = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self._library.cudnnBackendDestroyDescriptor.argtypes = [ctypes.c_void_p]
        self._device = self._create(_DEVICE)
        if isinstance(device, str):
            text = device.encode()
            self._set(self._device, _DEVICE_JSON, _TYPE_CHAR, ctypes.create_string_buffer(text, len(text)), len(text))
        else:
            self._set(self._device, _DEVICE_NUMBER, _TYPE_INT32, ctypes.byref(ctypes.c_int32(device)), 1)
        self._finalize(self._device)

    def kernels(self, problem: dict[str, Any]) -> list[tuple[int, int]]:
        """The engines cuDNN offers for a convolution, in the order it believes in, each with its workspace."""
        made: list[ctypes.c_void_p] = []
        try:
            graph = self._graph(problem, made)
            found = [kernel for mode in _MODES for kernel in self._offered(graph, mode, made)]
        finally:
            for descriptor in reversed(made):
                self._library.cudnnBackendDestroyDescriptor(descriptor)
        return list(dict.fromkeys(found))

    def _graph(self, problem: dict[str, Any], made: list[ctypes.c_void_p]) -> ctypes.c_void_p:
        convolution = self._create(_CONVOLUTION, made)
        self._set_enum(convolution, _COMPUTE_TYPE, _TYPE_DATA, _DATA_TYPES["f32"])
        self._set_enum(convolution, _MODE, _TYPE_MODE, _CROSS_CORRELATION)
        self._set_integers(convolution, _SPATIAL, [len(problem["strides"])])
        self._set_integers(convolution, _STRIDES, problem["strides"])
        self._set_integers(convolution, _PRE_PADDING, problem["padding"])
        self._set_integers(convolution, _POST_PADDING, problem["padding"])
        self._set_integers(convolution, _DILATIONS, problem["dilations"])
        self._finalize(convolution)
        descriptor, first = _OPERATIONS[problem["kind"]]
        operation = self._create(descriptor, made)
        for offset, factor in enumerate((1.0, 0.0)):
            self._set(operation, first + offset, _TYPE_DOUBLE, ctypes.byref(ctypes.c_double(factor)), 1)
        self._set_descriptor(operation, first + 2, convolution)
        tensors = {name: self._tensor(name[0], problem[name], problem, made) for name in ("filter", "image", "output")}
        operations = [operation]
        if problem["adds_bias"]:
            result, tensors["output"] = (
                tensors["output"],
                self._tensor("c", problem["output"], problem, made, kept=False),
            )
            operations.append(self._bias_added(tensors["output"], result, problem, made))
        for offset, tensor in enumerate(tensors.values()):
            self._set_descriptor(operation, first + 3 + offset, tensor)
        self._finalize(operation)
        graph = self._create(_GRAPH, made)
        self._set(
            graph,
            _GRAPH_OPERATIONS,
            _TYPE_DESCRIPTOR,
            (ctypes.c_void_p * len(operations))(*(each.value for each in operations)),
            len(operations),
        )
        self._finalize(graph)
        return graph

    def _bias_added(
        self, before: ctypes.c_void_p, after: ctypes.c_void_p, problem: dict[str, Any], made: list[ctypes.c_void_p]
    ) -> ctypes.c_void_p:
        outputs = problem["output"]
        bias = self._tensor("b", [1, outputs[1], *(1 for _ in outputs[2:])], problem, made)
        addition = self._create(_POINTWISE, made)
        self._set_enum(addition, _POINTWISE_MODE, _TYPE_POINTWISE, _ADD)
        self._set_enum(addition, _POINTWISE_PRECISION, _TYPE_DATA, _DATA_TYPES["f32"])
        self._finalize(addition)
        operation = self._create(_POINTWISE_OPERATION, made)
        for offset, descriptor in enumerate((addition, before, bias, after)):
            self._set_descriptor(operation, _POINTWISE_FIRST + offset, descriptor)
        self._finalize(operation)
        return operation

    def _tensor(
        self,
        identifier: str,
        shape: list[int],
        problem: dict[str, Any],
        made: list[ctypes.c_void_p],
        *,
        kept: bool = True,
    ) -> ctypes.c_void_p:
        if problem["dtype"] not in _DATA_TYPES:
            raise CudnnError(f"no kernels are known for {problem['dtype']}")
        tensor = self._create(_TENSOR, made)
        if not kept:
            self._set(tensor, _IS_VIRTUAL, _TYPE_BOOLEAN, ctypes.byref(ctypes.c_bool(True)), 1)
        self._set_enum(tensor, _DATA_TYPE, _TYPE_DATA, _DATA_TYPES[problem["dtype"]])
        self._set_integers(tensor, _DIMENSIONS, shape)
        self._set_integers(tensor, _TENSOR_STRIDES, _strides(shape, channels_last=problem["channels_last"]))
        self._set_integers(tensor, _IDENTIFIER, [ord(identifier)])
        self._set_integers(tensor, _ALIGNMENT, [_BYTES_ALIGNED])
        self._finalize(tensor)
        return tensor

    def _offered(self, graph: ctypes.c_void_p, mode: int, made: list[ctypes.c_void_p]) -> list[tuple[int, int]]:
        heuristics = self._create(_HEURISTICS, made)
        self._set_descriptor(heuristics, _HEURISTICS_GRAPH, graph)
        self._set_enum(heuristics, _HEURISTICS_MODE, _TYPE_HEURISTICS, mode)
        self._set_descriptor(heuristics, _HEURISTICS_DEVICE, self._device)
        try:
            self._finalize(heuristics)
        except CudnnError:
            return []
        count = ctypes.c_int64()
        self._get(heuristics, _HEURISTICS_RESULTS, _TYPE_DESCRIPTOR, 0, count, None)
        configs = [self._create(_ENGINE_CONFIG, made) for _ in range(count.value)]
        array = (ctypes.c_void_p * len(configs))(*(config.value for config in configs))
        self._get(heuristics, _HEURISTICS_RESULTS, _TYPE_DESCRIPTOR, len(configs), count, array)
        kernels = []
        for config in configs[: count.value]:
            engine = self._create(_ENGINE, made)
            self._get(config, _CONFIG_ENGINE, _TYPE_DESCRIPTOR, 1, count, (ctypes.c_void_p * 1)(engine.value))
            plan = self._create(_PLAN, made)
            self._set_descriptor(plan, _PLAN_CONFIG, config)
            self._set_descriptor(plan, _PLAN_DEVICE, self._device)
            try:
                self._finalize(plan)
            except CudnnError:
                continue
            kernels.append((self._integer(engine, _ENGINE_INDEX), self._integer(plan, _PLAN_WORKSPACE)))
        return kernels

    def _create(self, kind: int, made: list[ctypes.c_void_p] | None = None) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._check(self._library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
        if made is not None:
            made.append(descriptor)
        return descriptor

    def _set(self, descriptor: ctypes.c_void_p, name: int, kind: int, values: Any, count: int) -> None:
        self._check(self._library.cudnnBackendSetAttribute(descriptor, name, kind, ctypes.c_int64(count), values))

    def _set_integers(self, descriptor: ctypes.c_void_p, name: int, values: list[int]) -> None:
        self._set(descriptor, name, _TYPE_INT64, (ctypes.c_int64 * len(values))(*values), len(values))

    def _set_enum(self, descriptor: ctypes.c_void_p, name: int, kind: int, value: int) -> None:
        self._set(descriptor, name, kind, ctypes.byref(ctypes.c_int32(value)), 1)

    def _set_descriptor(self, descriptor: ctypes.c_void_p, name: int, value: ctypes.c_void_p) -> None:
        self._set(descriptor, name, _TYPE_DESCRIPTOR, (ctypes.c_void_p * 1)(value.value), 1)

    def _get(self, descriptor: ctypes.c_void_p, name: int, kind: int, wanted: int, count: Any, values: Any) -> None:
        get = self._library.cudnnBackendGetAttribute
        self._check(get(descriptor, name, kind, ctypes.c_int64(wanted), ctypes.byref(count), values))

    def _integer(self, descriptor: ctypes.c_void_p, name: int) -> int:
        value, count = ctypes.c_int64(), ctypes.c_int64()
        self._get(descriptor, name, _TYPE_INT64, 1, count, ctypes.byref(value))
        return value.value

    def _finalize(self, descriptor: ctypes.c_void_p) -> None:
        self._check(self._library.cudnnBackendFinalize(descriptor))

    def _check(self, status: int) -> None:
        if status:
            raise CudnnError(f"cuDNN status {status}")


def _strides(shape: list[int], *, channels_last: bool) -> list[int]:
    """How far apart neighbours are in memory; dimensions are samples, channels, and the spatial ones."""
    order = [1, *range(len(shape) - 1, 1, -1), 0] if channels_last else [*range(len(shape) - 1, -1, -1)]
    strides, distance = [0] * len(shape), 1
    for dimension in order:
        strides[dimension] = distance
        distance *= shape[dimension]
    return strides


def main(request: Path, answer: Path) -> None:
    """Answer every problem of a request; `None` for one that cuDNN cannot be asked about."""
    wanted = json.loads(request.read_text(encoding="utf-8"))
    for library in wanted["needs"]:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    cudnn = Cudnn(wanted["library"], wanted["device"])
    answers: list[list[tuple[int, int]] | None] = []
    for problem in wanted["problems"]:
        try:
            answers.append(cudnn.kernels(problem))
        except CudnnError:
            answers.append(None)
    answer.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
