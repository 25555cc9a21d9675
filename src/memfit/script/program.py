"""Running a script or a module as `python` would: `__main__`, `sys.argv`, `sys.path` and tracebacks are its own."""

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from memfit.errors import InputError
from memfit.script.words import refuse


def _read_stdin() -> bytes:
    return sys.stdin.buffer.read()


STDIN = "-"
"""The target that is a script on stdin, as with `python -`."""


class Program:
    """A script or module, with what follows it on the command line.

    Args:
        target: The path of a script, `"-"`, or with `is_module` a module's name.
        arguments: What follows it.
        is_module: Whether it is a module, as with `python -m`.
        piped: Reads the script `"-"`.
    """

    def __init__(
        self, target: str, arguments: tuple[str, ...], *, is_module: bool, piped: Callable[[], bytes] = _read_stdin
    ) -> None:
        self._target, self._arguments, self._is_module = target, arguments, is_module
        self._piped = piped

    def run(self) -> None:
        """Run it to its end in place of what is `__main__` now; whatever it raises is raised."""
        main = ModuleType("__main__")
        main.__dict__.update(__annotations__={}, __builtins__=builtins, __file__=None, __cached__=None)
        is_piped = self._target == STDIN and not self._is_module
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, self._place(is_piped=is_piped))
        command = ["-m", self._target] if self._is_module else [self._target]
        sys.orig_argv[:] = [sys.executable, *interpreter_options(sys.orig_argv), *command, *self._arguments]
        make = self._module_code if self._is_module else self._piped_code if is_piped else self._script_code
        code = make(main)
        sys.modules["__main__"] = main
        try:
            exec(code, main.__dict__)
        except BaseException:
            _show_only_from(code)
            raise

    def _place(self, *, is_piped: bool) -> str:
        """Where the program's own modules are looked for first."""
        if is_piped:
            return ""
        return str(Path.cwd()) if self._is_module else str(Path(self._target).resolve().parent)

    def _piped_code(self, main: ModuleType) -> CodeType:
        sys.argv = [self._target, *self._arguments]
        main.__file__ = "<stdin>"
        main.__loader__ = importlib.machinery.BuiltinImporter
        return _compiled(self._piped(), "<stdin>")

    def _script_code(self, main: ModuleType) -> CodeType:
        path = str(Path(self._target).absolute())
        sys.argv = [self._target, *self._arguments]
        main.__file__ = path
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            return _compiled(file.read(), path)

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
                    f"there is no module {self._target!r} to run, in {Path.cwd()} or installed. Check the "
                    f"name; a script is run without -m: memfit run {self._target.replace('.', '/')}.py"
                )
            )
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        main.__file__ = spec.origin
        sys.argv[0] = str(spec.origin)
        return code


def _compiled(source: bytes, path: str) -> CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        _show_only_from(None)
        raise


def interpreter_options(command: Sequence[str]) -> list[str]:
    """The options of a Python command line that are Python's own: those of `python -O -W error train.py`."""
    options: list[str] = []
    following = iter(command[1:])
    for word in following:
        if not word.startswith("-") or word in ("-", "-m", "-c"):
            break
        options.append(word)
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            options.append(next(following, ""))
    return options


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
