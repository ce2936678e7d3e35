"""Random programs at sizes that vary: ``python -m tests.fuzz.varying_sizes --minutes 10 --seed 0``."""

from __future__ import annotations

import sys
import warnings

from tests.compiled.test_varying_sizes import random_program
from tests.fuzz.command import by_command


def difference(seed: int) -> str | None:
    """Return the wrong result of the program of a seed; None if it is right."""
    try:
        random_program(seed)
    except AssertionError as error:
        return f"seed {seed}: {error}"
    return None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(by_command(__doc__ or "", "programs", difference))
