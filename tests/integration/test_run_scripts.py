"""`memfit run` on scripts of all kinds: what they see, print and end with is what it is under python."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time

import pytest

RUN = [sys.executable, "-m", "memfit", "run"]


@pytest.fixture
def script(tmp_path):
    def write(code, name="train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return path

    return write


def run(*command, cwd, **options):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120, **options)


def under_both(path, *arguments, module=False, **options):
    """The same under python and under memfit."""
    target = ["-m", path] if module else [path]
    cwd = options.pop("cwd")
    plain = run(sys.executable, *target, *arguments, cwd=cwd, **options)
    return plain, run(*RUN, *target, *arguments, cwd=cwd, **options)


SEES = """
    import argparse, sys
    import sibling
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan")
    parser.add_argument("-m", action="store_true")
    print(parser.parse_args())
    print(__name__, __file__, __package__, __spec__ is None, __doc__, sys.argv, sys.path[0])
    print(sys.modules["__main__"].__dict__ is globals(), sorted(globals()), "tensorflow" in sys.modules)
    print(input())
    print("to stderr", file=sys.stderr)
"""


def test_a_script_sees_what_it_sees_under_python(script, tmp_path):
    script("", "sibling.py")
    script(SEES)
    given = ("train.py", "--plan", "mine", "-m")
    plain, ours = under_both(*given, cwd=tmp_path, input="typed\n")
    assert plain.returncode == 0, plain.stderr
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr + "memfit: no training step of a Keras model ran, so nothing was recorded\n"
    assert ours.returncode == 0
    assert not list(tmp_path.glob("*.memfit*"))
    assert not list(tmp_path.glob(".memfit*"))


def test_a_module_runs_with_its_relative_imports(script, tmp_path):
    script("where = __name__", "package/helper.py")
    script("print('package comes first')", "package/__init__.py")
    code = (
        "import sys\nfrom .helper import where\nprint(where, __name__, __package__, __spec__.name, __file__, sys.argv)"
    )
    for name in ("train", "__main__"):
        script(code, f"package/{name}.py")
    for target in ("package.train", "package"):
        plain, ours = under_both(target, "--limit", "3", module=True, cwd=tmp_path)
        assert plain.returncode == 0, plain.stderr
        assert (ours.stdout, ours.returncode) == (plain.stdout, 0)


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print('so far'); sys.exit(3)",
        "import sys; sys.exit('a reason')",
        "def fail(): raise ValueError('not memory')\nfail()",
        "this is no Python",
        "import os; os.abort()",
        "import sys; sys.excepthook = lambda kind, error, traceback: print('mine', error); raise KeyError(1)",
        "import atexit; atexit.register(print, 'at exit'); raise SystemExit",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()",
    ],
)
def test_a_script_ends_as_under_python(script, tmp_path, code):
    script(code)
    plain, ours = under_both("train.py", cwd=tmp_path)
    stderr = ours.stderr.removesuffix("memfit: no training step of a Keras model ran, so nothing was recorded\n")
    stderr = stderr.removesuffix(
        "memfit: the script was ended by SIGABRT: a failed check in native code, or os.abort()\n"
    )
    assert (ours.stdout, stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_script_may_use_multiprocessing(script, tmp_path, method):
    script(f"""
        import multiprocessing
        def square(number):
            return number * number
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print(pool.map(square, range(5)))
    """)
    done = run(*RUN, "train.py", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("[0, 1, 4, 9, 16]\n", 0), done.stderr


WAITS = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: (print("terminated", flush=True), sys.exit(7)))
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        time.sleep(0.5)  # a second one would interrupt this
        raise
"""


@pytest.fixture(autouse=True)
def interruptible():
    """Processes that a shell starts in the background ignore the signal, and so would what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(tmp_path, *command):
    process = subprocess.Popen(
        command or [*RUN, "train.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_ctrl_c_interrupts_the_script_once(script, tmp_path):
    script(WAITS)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execv(RUN[0], [*RUN, "train.py"])
    shown = b""
    try:
        while b"ready" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        while more := os.read(terminal, 1000):
            shown += more
    except OSError:
        pass  # the terminal is closed when its last process ends
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert (shown.count(b"interrupted"), shown.count(b"KeyboardInterrupt")) == (1, 1)
    assert b"memfit/script" not in shown


@pytest.mark.parametrize(
    ("sent", "said", "code"), [(signal.SIGTERM, "terminated\n", 7), (signal.SIGINT, "interrupted\n", -signal.SIGINT)]
)
def test_a_signal_to_memfit_reaches_the_script(script, tmp_path, sent, said, code):
    script(WAITS)
    process = started(tmp_path)
    process.send_signal(sent)
    out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == (said, code)


def test_the_script_dies_when_memfit_is_killed(script, tmp_path):
    script("import os, time\nopen('pid', 'w').write(str(os.getpid()))\nprint('ready', flush=True)\ntime.sleep(60)")
    process = started(tmp_path)
    child = int((tmp_path / "pid").read_text())
    process.kill()
    process.communicate(timeout=20)
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the script still runs")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["missing.py"], "there is no script 'missing.py'"),
        (["."], "is a folder"),
        (["-m", "no.such.module"], "there is no module 'no.such.module'"),
        (["--budget", "8GiB", "--limit", "4GiB", "train.py"], "--budget and --limit are mutually exclusive"),
        (["--budget", "much", "train.py"], "--budget 'much' is not a usable memory size"),
        (["--plan", "missing.json", "train.py"], "the plan 'missing.json' cannot be read"),
        (["--record", "there.memfit.jsonl", "train.py"], "exists already"),
        (["--record", "no/folder.memfit.jsonl", "train.py"], "there is no folder no"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_script_starts(script, tmp_path, command, said):
    script("print('started')")
    (tmp_path / "there.memfit.jsonl").write_text("mine")
    done = run(*RUN, *command, cwd=tmp_path)
    assert said in " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "there.memfit.jsonl").read_text() == "mine"
