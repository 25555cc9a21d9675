"""Phases that are made ready side by side.

Tracing belongs to one thread, as Keras keeps its state by thread. What follows does not need Python: TensorFlow's
optimiser releases its lock, and XLA compiles in a child process. So one phase is optimised or compiled while the next
is traced.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from memfit.estimation.phases import PhasePrediction, XlaPhase, uses_compiler
from memfit.estimation.xla.card import is_here
from memfit.estimation.xla.hlo import lower_to_hlo

if TYPE_CHECKING:
    from memfit.estimation.xla.compiled import CompiledStep
    from memfit.estimation.xla.hlo import LoweredStep

# One for training, which takes longest, and one for the phases behind it.
_AT_ONCE = 2


def workers() -> ThreadPoolExecutor:
    """Threads for what follows tracing."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="memfit")


class CompiledAhead(XlaPhase):
    """A phase in the XLA regime whose compiler can be started before its answer is needed; see `XlaPhase`."""

    _started: "tuple[int, LoweredStep, Future[CompiledStep | None]] | None" = None

    def start(self, batch: int, threads: ThreadPoolExecutor) -> None:
        """Lower the step for a batch size and start its compiler.

        A compiler on this machine's card is not started: it would share the card with what runs meanwhile.
        """
        if self._compiled is None and uses_compiler() and not is_here(self._gpu):
            lowered = lower_to_hlo(self._function, self._spec(batch))
            self._started = batch, lowered, threads.submit(self._compile, lowered)

    def predict(self, batch: int, *, limit: int, growth: bool, resident: int, band: bool) -> PhasePrediction | None:
        """Wait for the compiler where it was started."""
        if self._started is not None:
            (started_at, lowered, compiled), self._started = self._started, None
            self._compiled = started_at, lowered, compiled.result()
        return super().predict(batch, limit=limit, growth=growth, resident=resident, band=band)
