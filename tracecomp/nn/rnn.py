"""Recurrent layers: one scan over time per layer and direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.device import Device
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.modes import modes, scope
from tracecomp.eager.overrides import NOT_OVERRIDDEN, override
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.autocast import FULL, LOWER, casts
from tracecomp.ir.types import DType
from tracecomp.nn import functional as F
from tracecomp.nn import init
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.shard_values import Shards
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.recurrence import scan, step
from tracecomp.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]
Weights = Sequence[Any]
"""Tensors, None for those that a layer lacks."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _one_way(
    mode: str, x: Tensor, mask: Tensor | None, state: State, weights: Weights, recurrent: Weights, reverse: bool
) -> tuple[State, Tensor]:
    """One layer in one direction over (T, N, *), by the weights of its input and of its state."""
    weight, bias, out = recurrent
    return scan(mode, F.linear(x, *weights), mask, state, weight, bias, out, reverse)


# PyTorch's GRU returns float32 under autocast, the others the lower type.
_lower, _full = casts(_one_way, LOWER), casts(_one_way, FULL)


def _one_step(mode: str, x: Tensor, states: State, weights: list[Any], recurrent: list[Any]) -> State:
    """The next state of a cell, by the weights of its input and of its state."""
    weight, bias = recurrent
    return step(mode, F.linear(x, *weights), states, weight, bias, None)


_lower_step, _full_step = casts(_one_step, LOWER), casts(_one_step, FULL)


def _shards(x: object) -> tuple[Shards, ...]:
    """``x`` if it is shards, for which a whole layer runs shard by shard: its scan takes tensors only."""
    return (x,) if isinstance(x, Shards) else ()


def layer(
    mode: str, x: Tensor, mask: Tensor | None, states: State | None, weights: Sequence[Weights],
    recurrent: Sequence[Weights], names: Sequence[str],
) -> tuple[Tensor, State]:  # fmt: skip
    """One layer over (T, N, *), forwards and, if there are two of everything, backwards.

    Returns its outputs, both directions concatenated, and the last states (directions, N, *). ``states`` are the
    initial ones, zero by default. ``weights`` (weight, bias) are those of the input, ``recurrent`` (weight, bias,
    projection) those of the state, for each direction. The state does not change where ``mask`` (T, N, 1) is False.
    """
    shards = _shards(x)
    if modes.function_modes or shards:  # exporters have an operator for the whole layer
        found = override(layer, (mode, x, mask, states, weights, recurrent, names), {}, shards)
        if found is not NOT_OVERRIDDEN:
            return found
    run = _full if mode == "GRU" else _lower
    outputs: list[Tensor] = []
    finals: list[State] = []
    for k, name in enumerate(names):
        first = _zeros(mode, x, recurrent[k]) if states is None else tuple(s[k] for s in states)
        with scope(name):
            final, out = run(mode, x, mask, first, weights[k], recurrent[k], k == 1)
        outputs.append(out)
        finals.append(final)
    together = outputs[0] if len(outputs) == 1 else T.cat(outputs, -1)
    return together, tuple(T.stack(list(column)) for column in zip(*finals, strict=True))


def _zeros(mode: str, x: Tensor, recurrent: Weights) -> State:
    """Initial states of one direction."""
    weight, _, out = recurrent
    hidden = weight.shape[0] // _GATES[mode]
    sizes = [hidden if out is None else out.shape[0], hidden]
    return tuple(T.zeros(x.shape[1], size, dtype=x.dtype) for size in sizes[: 2 if mode == "LSTM" else 1])


class RNNBase(Module):
    """Common part of recurrent layers. ValueError or TypeError when sizes do not make sense."""

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._check_sizes(mode, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        state_size = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                width = input_size if layer == 0 else state_size * directions
                gates = _GATES[mode] * hidden_size
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, width), "weight_hh": (gates, state_size)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(T.empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    @staticmethod
    def _check_sizes(mode: str, hidden_size: object, num_layers: int, dropout: object, proj_size: int) -> None:
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warn_as_pytorch(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                "num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            )
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        """Uniform in ``1 / sqrt(hidden_size)``, as in PyTorch."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Accepted for compatibility with PyTorch: weights need no common memory here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of every layer and direction."""
        names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        names += ("weight_hr",) if self.proj_size else ()
        return [
            [getattr(self, n + s) for n in names] for layer in range(self.num_layers) for s in self._suffixes(layer)
        ]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        return text + "".join(f", {n}={getattr(self, n)}" for n, v in usual.items() if getattr(self, n) != v)

    # -- running ---------------------------------------------------------------------------------------------------

    def _weights(self, kinds: Sequence[str], suffixes: Sequence[str]) -> list[list[Tensor | None]]:
        """Weights of one layer by direction."""
        return [[getattr(self, kind + suffix, None) for kind in kinds] for suffix in suffixes]

    def _layers(self, x: Tensor, states: State | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """All layers over (T, N, *); ``states`` hold (layers * directions, N, *)."""
        finals: list[State] = []
        for number in range(self.num_layers):
            suffixes = self._suffixes(number)
            of_input = self._weights(("weight_ih", "bias_ih"), suffixes)
            of_state = self._weights(("weight_hh", "bias_hh", "weight_hr"), suffixes)
            at = number * len(suffixes)
            first = None if states is None else tuple(s[at : at + len(suffixes)] for s in states)
            x, final = layer(self.mode, x, mask, first, of_input, of_state, [s[1:] for s in suffixes])
            finals.append(final)
            if self.dropout and number < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, finals[0] if len(finals) == 1 else tuple(T.cat(list(c)) for c in zip(*finals, strict=True))

    def _state_sizes(self) -> list[int]:
        first = self.proj_size or self.hidden_size
        return [first, self.hidden_size] if self.mode == "LSTM" else [first]

    def _initial(self, hx: Any, batch: int, single: bool, order: Tensor | None) -> State | None:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        if hx is None:
            return None
        given = tuple(hx) if self.mode == "LSTM" else (hx,)
        words = ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)
        states = []
        for state, size, word in zip(given, self._state_sizes(), words, strict=True):
            if state.ndim != (2 if single else 3):
                raise RuntimeError(
                    f"For {'unbatched 2-D' if single else 'batched 3-D'} input, hx should also be "
                    f"{2 if single else 3}-D but got {state.ndim}-D tensor"
                )
            state = state.unsqueeze(1) if single else state
            if tuple(state.shape) != (layers, batch, size):
                raise RuntimeError(f"Expected {word} size {(layers, batch, size)}, got {list(state.shape)}")
            states.append(state if order is None else state.index_select(1, order))
        return tuple(states)

    def _check_input(self, x: Tensor) -> None:
        if x.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {x.ndim}D instead")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(T, N, input_size), (N, T, input_size) if ``batch_first``, (T, input_size) or a PackedSequence."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        check_takes(type(self).__name__, map(type, (input, *(hx if isinstance(hx, tuple) else (hx,)))))
        self._check_input(input)
        single = input.ndim == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if x.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        states = self._initial(hx, x.shape[1], single, None)
        out, finals = self._layers(x, states, None)
        if single:
            out, finals = out.squeeze(1), tuple(s.squeeze(1) for s in finals)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, (finals if self.mode == "LSTM" else finals[0])

    def _forward_packed(self, packed: PackedSequence, hx: object) -> Any:
        x, lengths = packed.padded()
        mask = T.arange(x.shape[0]).unsqueeze(1) < lengths
        states = self._initial(hx, x.shape[1], False, packed.sorted_indices)
        out, finals = self._layers(x, states, mask.unsqueeze(-1))
        if packed.unsorted_indices is not None:
            finals = tuple(s.index_select(1, packed.unsorted_indices) for s in finals)
        return packed.with_padded(out, lengths), (finals if self.mode == "LSTM" else finals[0])


class RNN(RNNBase):
    """Elman network: ``h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)``, or relu.

    ``nonlinearity`` is ``"tanh"`` or ``"relu"``; it may follow ``num_layers`` among the positional arguments.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 3:
            kwargs["nonlinearity"], args = args[3], (*args[:3], *args[4:])
        nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014), gates in the order r, z, n."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """Common part of single-step cells."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Device = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.weight_ih = Parameter(T.empty(num_chunks * hidden_size, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(T.empty(num_chunks * hidden_size, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(T.empty(num_chunks * hidden_size, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ``1 / sqrt(hidden_size)``, as in PyTorch."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _step(self, mode: str, input: Tensor, hx: Any) -> State:
        if input.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        single = input.ndim == 1
        x = input.unsqueeze(0) if single else input
        count = 2 if mode == "LSTM" else 1
        if x.shape[1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}")
        if hx is None:
            states: State = (T.zeros(x.shape[0], self.hidden_size, dtype=x.dtype),) * count
        else:
            given = tuple(hx) if mode == "LSTM" else (hx,)
            for state in given:
                if state.ndim not in (1, 2):
                    raise ValueError(
                        f"{type(self).__name__}: Expected hidden to be 1D or 2D, got {state.ndim}D instead"
                    )
            states = tuple(s.unsqueeze(0) if single else s for s in given)
        run = _lower_step if mode.startswith("RNN") else _full_step
        operands = mode, x, states, [self.weight_ih, self.bias_ih], [self.weight_hh, self.bias_hh]
        shards = _shards(x)
        new = override(run, operands, {}, shards) if shards else run(*operands)
        return tuple(s.squeeze(0) for s in new) if single else new


class RNNCell(RNNCellBase):
    """One step of ``RNN``: (N, in), (N, hidden) -> (N, hidden)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Device = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, hx)[0]


class LSTMCell(RNNCellBase):
    """One step of ``LSTM``: (N, in), (h, c) -> (h, c)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> State:
        return self._step("LSTM", input, hx)


class GRUCell(RNNCellBase):
    """One step of ``GRU``: (N, in), (N, hidden) -> (N, hidden)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, hx)[0]
