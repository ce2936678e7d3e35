"""All scripts."""

from __future__ import annotations

from tests.programs import around, generation, models, training
from tests.programs.registry import SCRIPTS

__all__ = ["SCRIPTS", "around", "generation", "models", "training"]
