"""The names of ``torch.__future__``: choices between the current and a future behaviour of modules."""

from __future__ import annotations

from tracecomp.base import switches

_settings = switches.register(
    {"overwrite_module_params_on_conversion": False, "swap_module_params_on_conversion": False}
)


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Accepted; conversion changes the data of parameters in place, which keeps them the same objects."""
    _settings["overwrite_module_params_on_conversion"] = value


def get_overwrite_module_params_on_conversion() -> bool:
    return bool(_settings["overwrite_module_params_on_conversion"])


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Accepted; conversion changes the data of parameters in place, which keeps them the same objects."""
    _settings["swap_module_params_on_conversion"] = value


def get_swap_module_params_on_conversion() -> bool:
    return bool(_settings["swap_module_params_on_conversion"])
