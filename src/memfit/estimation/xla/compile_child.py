"""The child process that compiles HLO with XLA:GPU on a machine without a GPU.

`python -m memfit.estimation.xla.compile_child DIRECTORY` reads `module.pb` and `target.txtpb` there and writes
`memory.json`; XLA leaves the optimised module with its buffer assignment under `dump/`. The parent sets the
environment. It is a process of its own because the compiler may abort, and because of the libraries it loads.
"""

import json
import sys
from importlib import import_module
from pathlib import Path


def compile_module(directory: Path) -> None:
    """Compile the module of a directory; see above for the files."""
    # Names private to jax: the `xla` extra pins the one version they are known in.
    compiler = import_module("jax._src.compiler")
    mlir = import_module("jax._src.interpreters.mlir")
    library = import_module("jax._src.lib")
    topologies = import_module("jax.experimental.topologies")
    ir = import_module("jaxlib.mlir.ir")

    target = (directory / "target.txtpb").read_text(encoding="utf-8")
    topology = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x1")
    device = topology.devices[0]
    computation = library.xla_client.XlaComputation((directory / "module.pb").read_bytes())
    text = library.xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    executable = device.client.compile(module, library._jax.DeviceList((device,)), options)
    stats = executable.get_compiled_memory_stats()
    sizes = {
        "argument_bytes": stats.argument_size_in_bytes,
        "output_bytes": stats.output_size_in_bytes,
        "alias_bytes": stats.alias_size_in_bytes,
        "temp_bytes": stats.temp_size_in_bytes,
    }
    (directory / "memory.json").write_text(json.dumps(sizes), encoding="utf-8")


if __name__ == "__main__":
    compile_module(Path(sys.argv[1]))
