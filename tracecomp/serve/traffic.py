"""The versions of a model that answer requests without a version: by weight, with copies to a shadow version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tracecomp.serve.errors import InvalidRequest


@dataclass
class Traffic:
    """Weights of versions, and the version that gets a copy of each request.

    The choice is smooth weighted round robin, as in nginx: for any weights w with sum s, each s consecutive requests
    have exactly w of each version, and the versions alternate as evenly as possible.
    """

    weights: dict[str, int] = field(default_factory=dict)
    shadow: str = ""
    _credits: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid"}

    def __post_init__(self) -> None:
        if any(type(weight) is not int or not 0 <= weight <= 1_000_000 for weight in self.weights.values()):
            raise InvalidRequest("weights must be integers from 0 to 1000000")
        if self.weights and not any(self.weights.values()):
            raise InvalidRequest("a weight must be positive")
        self._credits = dict.fromkeys(self.weights, 0)

    def choose(self) -> str:
        """The version for the next request; empty for the default version."""
        if not self.weights:
            return ""
        for version, weight in self.weights.items():
            self._credits[version] += weight
        chosen = max(self._credits, key=lambda version: self._credits[version])
        self._credits[chosen] -= sum(self.weights.values())
        return chosen

    def without(self, version: str) -> Traffic:
        """The traffic after ``version`` has been unloaded. The default version answers if no weight is left."""
        weights = {other: weight for other, weight in self.weights.items() if other != version}
        return Traffic(weights if any(weights.values()) else {}, "" if self.shadow == version else self.shadow)
