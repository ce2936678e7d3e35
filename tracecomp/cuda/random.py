"""``torch.cuda.random`` on a machine without accelerators."""

from tracecomp.eager.absent_device import names_of

_NAMES = (
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
)  # fmt: skip
globals().update({name: value for name, value in names_of("cuda").items() if name in _NAMES})
