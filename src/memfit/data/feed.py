"""What memfit knows about a data set it made, kept with the data set and found again behind what was added to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memfit.data.broken import BrokenFiles
from memfit.data.facts import Bounds, Broken, Layout
from memfit.data.pipeline import Recipe
from memfit.errors import InputError

_NAME = "_memfit_feed"


@dataclass(frozen=True)
class Feed:
    """One split's recipe with the layout it belongs to, or the bounds that were put onto the user's own pipeline."""

    facts: Layout | Bounds
    recipe: Recipe | None = None
    broken: BrokenFiles | None = None
    ignored: tuple[Broken, ...] = ()

    def skipped(self) -> tuple[Broken, ...]:
        """Files that are left out: by name, found while sampling, or found since."""
        sampled = self.facts.measured.broken if isinstance(self.facts, Layout) else ()
        found = () if self.broken is None else self.broken.found()
        return (*self.ignored, *sampled, *found)


def attach(dataset: Any, feed: Feed) -> Any:
    """Keep it with the data set."""
    setattr(dataset, _NAME, feed)
    return dataset


def feed_of(dataset: Any) -> Feed:
    """What is known about a data set, or about the one it was made from.

    Raises:
        InputError: If memfit did not make it.
    """
    for each in lineage(dataset):
        if made_here(each):
            feed: Feed = getattr(each, _NAME)
            return feed
    raise InputError(
        f"{type(dataset).__name__} was not made by memfit.data. Make it with memfit.data.image_folder(...) or "
        "memfit.data.images(...), or put bounds on it with memfit.data.bounded(dataset, ram_budget=...)."
    )


def made_here(dataset: Any) -> bool:
    """Whether memfit made this very data set, and not one it was made from."""
    return isinstance(getattr(dataset, _NAME, None), Feed)


def lineage(dataset: Any) -> Iterator[Any]:
    """A data set and those it was made from, the nearest first."""
    waiting = [dataset]
    while waiting:
        each = waiting.pop(0)
        yield each
        inputs = getattr(each, "_inputs", None)
        waiting += list(inputs()) if callable(inputs) else []
