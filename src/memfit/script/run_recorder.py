"""The recorder of a run, which never keeps a script from training."""

from memfit.errors import InputError
from memfit.observe.recorder import Recorder
from memfit.script.folder import RunFolder
from memfit.script.settings import Settings
from memfit.script.words import say


def run_recorder(settings: Settings, folder: RunFolder) -> Recorder:
    """Make the recorder at the first `fit`; where the record can no longer be written, none is left behind.

    Args:
        settings: The settings of the run.
        folder: The folder that both processes share; it takes the record then, and is deleted with it.
    """
    resume = settings.restarts > 0
    try:
        return Recorder(settings.record, force=settings.force, resume=resume)
    except InputError as error:
        say(f"the run leaves no record: {error}")
        return Recorder(folder.spare_record, force=True, resume=resume)
