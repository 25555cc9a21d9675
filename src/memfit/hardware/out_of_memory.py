"""Telling out-of-memory from other errors: TensorFlow, XLA and CUDA each say it in their own words.

It is not always a `ResourceExhaustedError`: where no convolution kernel finds its scratch memory it is a
`NotFoundError`, for a constant an `InvalidArgumentError`, and where a step is compiled an `InternalError` may have it
inside.
"""

import re
from collections.abc import Iterator

_WORDS = re.compile(
    r"OOM when allocating|out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|failed to allocate"
    # A tensor that finds no place on the GPU it is copied to; libraries that find none for themselves.
    r"|Dst tensor is not initialized|CU\w+_STATUS_ALLOC_FAILED"
    # A constant that finds no place (`MakeTensorFromProto`); the proto itself is the one that TensorFlow wrote.
    r"|Cannot parse tensor from proto"
    # A constant that finds no place while a graph is made (`EvaluateConstantTensor`).
    r"|Unable to evaluate a constant node",
    re.IGNORECASE,
)
# What TensorFlow and Keras put around the sentence: colours, the node before it, the operation behind it.
_DECORATION = re.compile(r"\x1b\[[\d;]*m|\{\{.*?\}\}\s*|\s*\[Op:.*|:\s*goo\.gle/debugonly.*")
_LONGEST = 500


def out_of_memory(error: BaseException | None) -> str | None:
    """The allocator's sentence, if an error or one of its causes is out-of-memory; else `None`."""
    return next(filter(None, map(_own_sentence, with_causes(error))), None)


def original(error: BaseException) -> BaseException:
    """The out-of-memory error that came first, where a recovery from it has failed; else the error itself.

    TensorFlow raises one error several times over, each caused by the last: of those it is the outermost.
    """
    chain = [(each, _own_sentence(each)) for each in with_causes(error)]
    first = next((sentence for _, sentence in reversed(chain) if sentence is not None), None)
    return error if first is None else next(each for each, sentence in chain if sentence == first)


def _own_sentence(error: BaseException) -> str | None:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if telling := [line for line in lines if _WORDS.search(line)]:
        return one_sentence(_DECORATION.sub("", telling[0]))
    # By name: TensorFlow need not be there to tell its errors from others.
    if isinstance(error, MemoryError) or "ResourceExhaustedError" in (base.__name__ for base in type(error).__mro__):
        return one_sentence(lines[0] if lines else type(error).__name__)
    return None


def one_sentence(text: str) -> str:
    """Short enough for an error message, with a full stop."""
    return text[:_LONGEST].rstrip(". ") + "."


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was raised from, what was being handled then, and what an error group holds."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
