"""`memfit.explain_oom`: an out-of-memory error in twenty lines instead of two hundred."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from memfit.compat.variables import bytes_besides
from memfit.errors import InputError, MemfitError
from memfit.hardware import devices
from memfit.hardware.host import host_memory
from memfit.hardware.out_of_memory import original, out_of_memory, with_causes
from memfit.observe.oom_explanation import OomExplanation
from memfit.observe.oom_message import Request, read_message
from memfit.observe.oom_source import find_layer, frames_of, layer_line, model_in_frames
from memfit.observe.recording import resident_bytes
from memfit.planning.planner import Planner
from memfit.techniques.technique import Grade
from memfit.trace.reader import part_of
from memfit.trace.step import Part
from memfit.units import Size, parse_size, size_literal

__all__ = ["OomExplanation", "explain_oom"]

_LARGEST = 3
_T = TypeVar("_T")


def explain_oom(
    error: BaseException,
    model: Any = None,
    batch_size: int | None = None,
    *,
    limit: Size | None = None,
    numerics: Grade = "exact",
    data: Any = None,
) -> OomExplanation:
    """Say which operation of which layer ran out of memory, what held it, and what would make it fit.

    Args:
        error: The error of TensorFlow, XLA, cuDNN, CUDA or Python, or one that was raised while it was handled.
        model: The model that was trained; by default the one that the code that failed held, which then only tells
            the layer.
        batch_size: Its batch size. With both, what takes the memory is predicted and a plan is searched, which
            takes as long as `memfit.plan`.
        limit: The available memory; by default what the device was configured with, or what the card has.
        numerics: How exact the plan has to be, as for `memfit.plan`.
        data: An example batch, for models that do not say what theirs looks like.

    Returns:
        The explanation; print it. What could not be found is shown as unknown.

    Raises:
        InputError: If the error has nothing to do with memory, or an argument cannot be used.

    Example:
        ```python
        try:
            model.fit(x, y, batch_size=64)
        except Exception as error:
            print(memfit.explain_oom(error, model, batch_size=64))
            raise
        ```
    """
    if not isinstance(error, BaseException):
        raise InputError(f"expected an error that was caught, got {type(error).__name__}: {error!r:.60}.")
    budget = None if limit is None else parse_size(limit, what="limit")
    sentence = out_of_memory(error)
    if sentence is None:
        text = " ".join(str(error).split())[:200]
        raise InputError(
            f"this error is not out-of-memory: {type(error).__name__}{': ' if text else ''}{text}. "
            "Pass the error that model.fit raised when memory ran out."
        )
    # A recovery that failed raises its own error after the one to explain.
    first = original(error)
    sentence = out_of_memory(first) or sentence
    causes = list(with_causes(first))
    request = _attempt(lambda: read_message([str(each) for each in causes], frames_of(first))) or Request()
    host = any(isinstance(each, MemoryError) for each in causes)
    shown = model if model is not None else _attempt(lambda: model_in_frames(error, request.op))
    found = OomExplanation(
        message=sentence,
        error=type(first).__name__,
        host=host,
        asked_bytes=request.bytes,
        shape=request.shape,
        dtype=request.dtype,
        op=request.op,
        op_type=request.op_type,
        part=_part(request, shown),
        compiled=request.compiled,
        called_at=_place(request.called_at),
        model=None if shown is None else str(getattr(shown, "name", None)),
        batch_size=batch_size,
    )
    found = _with_layer(found, request, shown)
    found = _with_memory(found, request, budget)
    found = replace(found, command=_command(found))
    return found if host or model is None or batch_size is None else _with_plan(found, model, numerics, data)


def _part(request: Request, model: Any | None) -> Part | None:
    if request.op is None or "/" not in request.op:
        return None
    return part_of(getattr(getattr(model, "optimizer", None), "name", None))(request.op)


def _with_layer(found: OomExplanation, request: Request, model: Any | None) -> OomExplanation:
    layer = request.layer or (_attempt(lambda: find_layer(request.op or "", model)) if request.op else None)
    if layer is None:
        return replace(found, layer=request.layer_class and f"a {request.layer_class}")
    return replace(found, layer=layer, source=_attempt(lambda: _place(layer_line(layer, model, request.files))))


def _with_memory(found: OomExplanation, request: Request, budget: int | None) -> OomExplanation:
    """What is in use now and how much there is."""
    if found.host:
        ceiling = _attempt(lambda: host_memory().ceiling)
        return replace(found, device="host", in_use_bytes=_attempt(resident_bytes), limit_bytes=budget or ceiling)
    readings = _attempt(devices.memory) or ()
    named = [reading for reading in readings if reading.device == request.device]
    for reading in (*named, *readings):
        limit = budget or reading.limit or (_card_limit() if reading.device.startswith("GPU") else None)
        # So much was never in use that a request of this size would not have fitted, had it been one piece.
        fragmented = None
        if reading.limit and found.asked_bytes:
            fragmented = reading.limit - reading.peak >= found.asked_bytes
        return replace(
            found,
            device=reading.device,
            in_use_bytes=reading.current,
            peak_bytes=reading.peak,
            limit_bytes=limit,
            fragmented=fragmented,
        )
    return replace(found, device=request.device, limit_bytes=budget)


def _card_limit() -> int | None:
    from memfit.estimation.estimate import default_gpu

    return _attempt(lambda: default_gpu().default_limit)


def _with_plan(found: OomExplanation, model: Any, numerics: Grade, data: Any) -> OomExplanation:
    """What the model takes by prediction, and what would make it fit."""
    gpu = "cpu" if (found.device or "").startswith("CPU") else None
    try:
        # Nothing is run: the memory is full.
        planner = Planner(
            model,
            found.batch_size or 0,
            gpu=gpu,
            jit=bool(model.jit_compile),
            data=data,
            resident=bytes_besides(model, found.in_use_bytes or 0),
            prove=False,
        )
        plain = planner.plain
        found = replace(
            found,
            predicted_peak=plain.steady_peak,
            predicted_bytes={str(kind): size for kind, size in plain.breakdown().items()},
            largest=tuple(plain.largest(_LARGEST)),
        )
        if found.limit_bytes is None:
            return replace(found, why_no_plan='no limit is known; pass limit="8GiB".')
        return replace(found, plan=planner.plan(found.limit_bytes, numerics=numerics, verify="trace"))
    except MemfitError as error:
        return replace(found, why_no_plan=str(error))
    except Exception as error:  # noqa: BLE001 (an explanation must not fail where the training did)
        return replace(found, why_no_plan=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _command(found: OomExplanation) -> str | None:
    if found.host:
        return None
    limit = "8GiB" if found.limit_bytes is None else size_literal(found.limit_bytes)
    return f'memfit.plan(model, batch_size, budget="{limit}")'


def _place(place: tuple[str, int] | str | None) -> str | None:
    """`file:line`, with the file as seen from here."""
    if place is None or isinstance(place, str):
        return place
    file, line = place
    relative = _attempt(lambda: os.path.relpath(file))
    shown = file if relative is None or relative.startswith("..") or file.startswith("<") else relative
    return f"{shown}:{line}"


def _attempt(look: Callable[[], _T | None]) -> _T | None:
    """What a look gives; `None` where it fails: an explanation must not fail where the training did."""
    try:
        return look()
    except Exception:  # noqa: BLE001 (what is broken is the user's, and unknown is an answer)
        return None
