from memfit.hardware.host import OomKills, host_memory, oom_kills
from memfit.units import GIB


def machine(root, meminfo="MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n", **files):
    texts = {"proc/meminfo": meminfo, **{name.replace("__", "/"): text for name, text in files.items()}}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host_memory(root)


def test_without_a_limit_everything_available_is_usable(tmp_path):
    host = machine(tmp_path)
    assert (host.total, host.available, host.cgroup_limit) == (16 * GIB, 8 * GIB, None)
    assert (host.usable, host.ceiling) == (8 * GIB, 16 * GIB)


def test_a_version_2_group_limits_what_is_usable(tmp_path):
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/job/memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "sys/fs/cgroup/job/memory.current").write_text(f"{1 * GIB}\n")
    host = machine(tmp_path, proc__self__cgroup="0::/job\n")
    assert (host.cgroup_limit, host.usable, host.ceiling) == (4 * GIB, 3 * GIB, 4 * GIB)


def test_the_tightest_group_on_the_way_to_the_root_counts(tmp_path):
    for folder, limit in (("", "max"), ("outer", str(2 * GIB)), ("outer/inner", str(6 * GIB))):
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / folder / "memory.max").write_text(limit)
    assert machine(tmp_path, proc__self__cgroup="0::/outer/inner\n").cgroup_limit == 2 * GIB


def test_version_1_writes_no_limit_as_a_huge_number(tmp_path):
    (tmp_path / "sys/fs/cgroup/memory").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine(tmp_path, proc__self__cgroup="5:cpu,memory:/\n").cgroup_limit is None


def test_what_cannot_be_read_is_unknown(tmp_path):
    host = host_memory(tmp_path)
    assert (host.total, host.available, host.usable, host.ceiling) == (None, None, None, None)


def test_the_kernels_counters_of_processes_it_killed(tmp_path):
    assert oom_kills(tmp_path) == OomKills(None, None)
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/job/memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    machine(tmp_path, proc__self__cgroup="0::/job\n", proc__vmstat="pgfault 9\noom_kill 7\n")
    assert oom_kills(tmp_path) == OomKills(2, 7)


def test_the_counter_of_a_version_1_group(tmp_path):
    (tmp_path / "sys/fs/cgroup/memory").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory/memory.oom_control").write_text("under_oom 0\noom_kill 4\n")
    machine(tmp_path, proc__self__cgroup="5:cpu,memory:/\n")
    assert oom_kills(tmp_path) == OomKills(4, None)
