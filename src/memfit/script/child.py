"""The process that runs the script. Started as a file: under `-m` the current folder would be searched for modules."""

import sys


def main() -> None:
    """Run the script of the run whose folder is named."""
    if not getattr(sys.flags, "safe_path", False):
        # The folder of this file; the script's own comes in its place.
        sys.path.pop(0)

    from pathlib import Path

    from memfit.script.folder import RunFolder
    from memfit.script.lifeline import die_with_parent
    from memfit.script.program import Program
    from memfit.script.script_run import ScriptRun

    die_with_parent()
    folder = RunFolder(Path(sys.argv[1]))
    settings = folder.settings()
    with ScriptRun(settings, folder):
        program = Program(
            settings.target,
            settings.arguments,
            is_module=settings.is_module,
            piped=lambda: folder.piped_source(sys.stdin.buffer.read),
        )
        program.run()


if __name__ == "__main__":
    main()
