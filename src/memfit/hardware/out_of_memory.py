"""Telling out-of-memory from other errors: TensorFlow, XLA and CUDA each say it in their own words.

It is not always a `ResourceExhaustedError`: where no convolution kernel finds its scratch memory it is a
`NotFoundError`, and where a step is compiled an `InternalError` may have it inside.
"""

import re
from collections.abc import Iterator

_WORDS = re.compile(
    r"OOM when allocating|out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|failed to allocate"
    # A tensor that finds no place on the GPU it is copied to; libraries that find none for themselves.
    r"|Dst tensor is not initialized|CU\w+_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
# What TensorFlow and Keras put around the sentence: colours, the node before it, the operation behind it.
_DECORATION = re.compile(r"\x1b\[[\d;]*m|\{\{.*?\}\}\s*|\s*\[Op:.*")
_LONGEST = 500


def out_of_memory(error: BaseException | None) -> str | None:
    """The allocator's sentence, if an error or one of its causes is out-of-memory; else `None`."""
    for each in with_causes(error):
        lines = [line.strip() for line in str(each).splitlines() if line.strip()]
        if telling := [line for line in lines if _WORDS.search(line)]:
            return one_sentence(_DECORATION.sub("", telling[0]))
        # By name: TensorFlow need not be there to tell its errors from others.
        if isinstance(each, MemoryError) or "ResourceExhaustedError" in (base.__name__ for base in type(each).__mro__):
            return one_sentence(lines[0] if lines else type(each).__name__)
    return None


def one_sentence(text: str) -> str:
    """Short enough for an error message, with a full stop."""
    return text[:_LONGEST].rstrip(". ") + "."


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
