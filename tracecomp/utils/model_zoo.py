"""The names of ``torch.utils.model_zoo``, which are now those of ``torch.hub``, in a layer above ``utils``."""

from importlib import import_module

load_url = import_module("tracecomp.hub").load_state_dict_from_url

__all__ = ["load_url"]
