"""Running a script or a module as `python` would: `__main__`, `sys.argv`, `sys.path` and tracebacks are its own."""

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from memfit.errors import InputError
from memfit.script.words import refuse


class Program:
    """A script or module, with what follows it on the command line.

    Args:
        target: The path of a script, or with `is_module` a module's name.
        arguments: What follows it.
        is_module: Whether it is a module, as with `python -m`.
    """

    def __init__(self, target: str, arguments: tuple[str, ...], *, is_module: bool) -> None:
        self._target, self._arguments, self._is_module = target, arguments, is_module

    def run(self) -> None:
        """Run it to its end in place of what is `__main__` now; whatever it raises is raised."""
        main = ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __annotations__={}, __cached__=None)
        place = str(Path.cwd()) if self._is_module else str(Path(self._target).resolve().parent)
        sys.path.insert(0, place)
        code = self._module_code(main) if self._is_module else self._script_code(main)
        sys.modules["__main__"] = main
        try:
            exec(code, main.__dict__)
        except BaseException:
            _show_only_from(code)
            raise

    def _script_code(self, main: ModuleType) -> CodeType:
        path = str(Path(self._target).absolute())
        sys.argv = [self._target, *self._arguments]
        main.__file__ = path
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            source = file.read()
        try:
            return compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            _show_only_from(None)
            raise

    def _module_code(self, main: ModuleType) -> CodeType:
        # What a failing import of a parent package has found before is what `sys.argv[0]` is under `python -m`.
        sys.argv = ["-m", *self._arguments]
        spec = _find(self._target)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _find(f"{self._target}.__main__")
        code: CodeType | None = None
        if spec is not None and isinstance(spec.loader, importlib.abc.InspectLoader):
            code = spec.loader.get_code(spec.name)
        if spec is None or code is None:
            refuse(
                InputError(
                    f"there is no module {self._target!r} that can be run, in {Path.cwd()} or installed. Check the "
                    f"name; a script is run without -m: memfit run {self._target.replace('.', '/')}.py"
                )
            )
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        main.__file__ = spec.origin
        sys.argv[0] = str(spec.origin)
        return code


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError) as error:
        # The parent is no package, or is missing itself; what it fails to import is its own error.
        if isinstance(error, ValueError) or name.startswith(f"{error.name}"):
            return None
        raise


def _show_only_from(code: CodeType | None) -> None:
    """Have the traceback that ends the program begin where the program does, whoever prints it."""
    shown_by = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        first = traceback
        while first is not None and first.tb_frame.f_code is not code:
            first = first.tb_next
        shown_by(kind, error.with_traceback(first), first)

    sys.excepthook = show
