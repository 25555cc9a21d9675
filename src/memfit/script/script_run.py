"""A script's run: what happens before its first line and after its last.

Neither TensorFlow nor NumPy is imported here: the script may still want to configure them.
"""

from types import TracebackType
from typing import TYPE_CHECKING

from memfit.script.folder import RunFolder
from memfit.script.imports import when_imported
from memfit.script.settings import Settings

if TYPE_CHECKING:
    from memfit.script.training import Training


class ScriptRun:
    """A script's run, around the script.

    Args:
        settings: What was asked for.
        folder: What is shared with the process that watches over this one.
    """

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self._settings, self._folder = settings, folder
        self._training: Training | None = None

    def __enter__(self) -> "ScriptRun":
        when_imported(self._settings, self._watch_training)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._training is not None:
            self._training.script_ended(error)

    def _watch_training(self) -> None:
        from memfit.script.training import Training

        self._training = Training(self._settings, self._folder)
