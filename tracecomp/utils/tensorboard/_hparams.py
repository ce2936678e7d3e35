"""TensorBoard's records of the settings of a run."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import DataType, Experiment, HParamInfo, MetricInfo, MetricName, Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from tracecomp.eager.tensor import Tensor

__all__ = ["hparams"]
Settings = dict[str, Any]
Domains = dict[str, list[Any]]


def _checked(hparam_dict: Settings, metric_dict: Settings, domains: Domains) -> None:
    """TypeError for arguments of other types."""
    for name, value in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(value, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, values in domains.items():
        listed = name in hparam_dict and isinstance(values, list)
        if not listed or not all(isinstance(value, type(hparam_dict[name])) for value in values):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )


def _kind(value: object) -> tuple[str, str]:
    """The field and the type of a value. A bool is an int here, as in PyTorch."""
    if isinstance(value, int | float | Tensor):
        return "number_value", "DATA_TYPE_FLOAT64"
    if isinstance(value, str):
        return "string_value", "DATA_TYPE_STRING"
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


def _record(tag: str, **content: Any) -> Any:
    data = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=data)
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))])


def hparams(hparam_dict: Settings, metric_dict: Settings, hparam_domain_discrete: Domains | None = None) -> Any:
    """Record the settings and the names of the metrics of a run.

    Args:
        hparam_dict: settings by name. None leaves a setting out.
        metric_dict: metrics by name.
        hparam_domain_discrete: lists of the values that settings may have.

    Returns:
        The records of the experiment, of the start and of the end of the session.
    """
    domains = hparam_domain_discrete or {}
    _checked(hparam_dict, metric_dict, domains)
    start = SessionStartInfo()
    infos = []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        field, dtype = _kind(value)
        setattr(start.hparams[name], field, float(value) if isinstance(value, Tensor) else value)
        domain = None
        if name in domains:
            domain = struct_pb2.ListValue(values=[struct_pb2.Value(**{field: choice}) for choice in domains[name]])
        infos.append(HParamInfo(name=name, type=DataType.Value(dtype), domain_discrete=domain))
    metrics = [MetricInfo(name=MetricName(tag=name)) for name in metric_dict]
    end = SessionEndInfo(status=Status.Value("STATUS_SUCCESS"))
    return (
        _record(metadata.EXPERIMENT_TAG, experiment=Experiment(hparam_infos=infos, metric_infos=metrics)),
        _record(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _record(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )
