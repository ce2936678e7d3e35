"""PyTorch's switches for logs of its compiler, whose parts do not exist here."""

from __future__ import annotations

from tracecomp.base.errors import at_user_line, warn_user

ARTIFACTS = frozenset({
    "all", "dynamo", "aot", "autograd", "dynamic", "inductor", "distributed", "c10d", "ddp", "fsdp", "dtensor", "onnx",
    "bytecode", "aot_graphs", "aot_joint_graph", "ddp_graphs", "graph", "graph_code", "graph_code_verbose",
    "graph_breaks", "graph_sizes", "guards", "recompiles", "recompiles_verbose", "trace_source", "trace_call",
    "trace_bytecode", "output_code", "kernel_code", "schedule", "perf_hints", "fusion", "overlap", "export", "modules",
    "cudagraphs", "sym_node", "compiled_autograd", "compiled_autograd_verbose", "verbose_guards", "loop_ordering",
    "post_grad_graphs", "inductor_metrics", "benchmarking", "cache", "async_compile", "ir_pre_fusion",
    "ir_post_fusion", "onnx_diagnostics", "autotuning", "graph_region_expansion", "hierarchical_compile",
})  # fmt: skip
"""The known switches."""

__all__ = ["set_logs"]


def set_logs(**logs: object) -> None:
    """Warn that such logs do not exist here, and name the alternative. ValueError for a name that PyTorch does not
    have.

    Graph breaks are a warning anyway. ``compiled.explain()`` shows recordings and the reasons for more, guards, graphs,
    kernels and unfused operators.
    """
    unknown = logs.keys() - ARTIFACTS
    if unknown:
        raise ValueError(at_user_line(f"Unrecognized log artifact name passed to set_logs: {min(unknown)}"))
    if any(logs.values()):
        warn_user("torch._logging.set_logs() has no effect. Call print(compiled.explain()) or set TRACECOMP_LOG")
