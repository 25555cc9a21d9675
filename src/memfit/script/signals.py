"""The signal that ended a script, in one line with its likely cause. Needs no TensorFlow."""

import signal

from memfit.hardware.host import HostMemory, OomKills
from memfit.units import format_size, size_literal

# Those that TensorFlow, XLA and oneDNN die of; any of them may be a mistake in native code, or memory.
_CAUSES: dict[int, str] = {
    signal.SIGKILL: "the system's out-of-memory killer, or someone with kill -9",
    signal.SIGTERM: "a request to stop, by kill, a batch system or a container",
    signal.SIGHUP: "its terminal was closed",
    signal.SIGQUIT: "Ctrl-\\ in its terminal, or kill -QUIT",
    signal.SIGSEGV: "a crash in native code; TensorFlow's kernels may crash so when memory runs out",
    signal.SIGBUS: "a file mapped into memory was truncated, or shared memory (/dev/shm) is full",
    signal.SIGABRT: "a failed check in native code, or os.abort()",
    signal.SIGFPE: "a division by zero in native code",
    signal.SIGILL: "an instruction this processor does not have; is TensorFlow built for it?",
    signal.SIGXCPU: "the limit of CPU time (ulimit -t)",
    signal.SIGXFSZ: "the limit of file size (ulimit -f)",
    signal.SIGPIPE: "the program that read its output has ended",
}
# What a process dies of when TensorFlow, XLA or oneDNN find no memory and do not raise: a failed check, or a kernel
# that writes to memory it was not given.
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def death_line(
    code: int,
    *,
    sender: int | None = None,
    before: OomKills,
    after: OomKills,
    host: HostMemory,
    limit: int | None = None,
) -> str | None:
    """Say which signal ended a process, and why if that can be told.

    Args:
        code: The exit code; a negative one is a signal.
        sender: The process that sent memfit this signal to pass on, if one did.
        before: The kernel's counters when the script started.
        after: The same when it had ended.
        host: The host's memory.
        limit: What the script's device was limited to.

    Returns:
        One line; `None` where no signal ended it, or only Ctrl-C did.
    """
    if code >= 0 or -code == signal.SIGINT:
        return None
    if sender is not None:
        return f"the script was ended by {_name(-code)}, which process {sender} sent to memfit"
    cause = _killed(before, after, host) if -code == signal.SIGKILL else _CAUSES.get(-code)
    more = f". The limit was {format_size(limit)}; try {size_literal(2 * limit)}" if limit and -code in CRASHES else ""
    return f"the script was ended by {_name(-code)}{f': {cause}' if cause else ''}{more}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _killed(before: OomKills, after: OomKills, host: HostMemory) -> str:
    if _rose(before.group, after.group):
        limit = f" of {format_size(host.cgroup_limit)}" if host.cgroup_limit is not None else ""
        return f"the out-of-memory killer, since this container or job reached its memory limit{limit}"
    if _rose(before.machine, after.machine):
        total = f", which has {format_size(host.total)} of memory" if host.total is not None else ""
        return f"most likely the out-of-memory killer, which was active on this machine{total}"
    cause = _CAUSES[signal.SIGKILL]
    unchanged = before.machine is not None and before.machine == after.machine
    return f"{cause}; the kernel counted no out-of-memory kill" if unchanged else cause


def _rose(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
