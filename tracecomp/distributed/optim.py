"""``torch.distributed.optim``: optimizers whose state is sharded over processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.communication.group import Group
from tracecomp.distributed.algorithms.model_averaging.averagers import ModelAverager
from tracecomp.distributed.collectives import broadcast
from tracecomp.distributed.objects import of_processes
from tracecomp.distributed.processes import default_group, get_global_rank
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.parallel.join import Join, Joinable, JoinHook
from tracecomp.optim.optimizer import Optimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """``optimizer_class``, of which every process keeps the state of some parameters and updates only those.

    After a step each process sends its parameters. Parameters are distributed by size, so processes keep about equal
    amounts. Gradients must be equal everywhere, as after ``DistributedDataParallel``. The bits are those of
    ``optimizer_class`` without it. (Rajbhandari et al. 2020, stage 1)
    """

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: Group | None = None,
        parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any,
    ) -> None:  # fmt: skip
        if overlap_with_ddp:
            raise NotImplementedError(at_user_line("ZeroRedundancyOptimizer: overlap_with_ddp is not supported"))
        self.process_group = process_group or default_group()
        self._class, self._made = optimizer_class, defaults
        self.optim: Optimizer | None = None
        super().__init__(params, defaults)
        self._share_out()

    def _share_out(self) -> None:
        """Assign parameters to processes; create the optimizer of this process."""
        self._load = [0] * self.process_group.size()
        self._owner: dict[Tensor, int] = {}
        self._places: list[int] = []  # the groups with parameters of this process
        self._assign([p for g in self.param_groups for p in g["params"]])
        for place in range(len(self.param_groups)):
            self._add_own(place)

    def _assign(self, params: Sequence[Tensor]) -> None:
        """Assign parameters to the processes with the fewest elements, large ones first. Earlier ones stay."""
        for p in sorted(params, key=lambda p: -p.numel()):
            self._owner[p] = self._load.index(min(self._load))
            self._load[self._owner[p]] += p.numel()

    def _add_own(self, place: int) -> None:
        """Add this process's parameters of a group to its optimizer, whose options become those of the group."""
        group = self.param_groups[place]
        params = [p for p in group["params"] if self._owner[p] == self.process_group.rank()]
        if not params:
            return
        own = {**{k: v for k, v in group.items() if k != "param_names"}, "params": params}
        if self.optim is None:
            self.optim = self._class([own], **self._made)
        else:
            self.optim.add_param_group(own)
        self._places.append(place)
        group.update({k: v for k, v in self.optim.param_groups[-1].items() if k not in ("params", "param_names")})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with separate options; the process with the fewest elements so far keeps each one's state."""
        super().add_param_group(param_group)
        if hasattr(self, "_owner"):
            self._assign(self.param_groups[-1]["params"])
            self._add_own(len(self.param_groups) - 1)

    def step(self, closure: Callable[[], object] | None = None, **options: Any) -> Any:
        """Step this process's parameters, then send them; return the loss of ``closure``."""
        loss = None if closure is None else closure()
        Join.notify_join_context(self)
        self.step_and_send()
        return loss

    def step_and_send(self) -> None:
        """Step this process's parameters, then send them."""
        if self.optim is not None:
            for place, own in zip(self._places, self.optim.param_groups, strict=True):
                own.update({k: v for k, v in self.param_groups[place].items() if k not in ("params", "param_names")})
            self.optim.step()
        self._send()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """This optimizer's part in a ``Join`` block: a step with the current gradients."""
        return _Steps(self)

    @property
    def join_device(self) -> Any:
        """The CPU."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Group:
        """The group over which states are sharded."""
        return self.process_group

    def _send(self) -> None:
        """Send every parameter from its process to all, those of one process and dtype concatenated."""
        group = self.process_group
        rows: dict[tuple[int, Any], list[Tensor]] = {}
        for g in self.param_groups:
            for p in g["params"]:
                rows.setdefault((self._owner[p], p.dtype), []).append(p)
        with no_grad():
            for (rank, _), params in rows.items():
                flat = T.cat([p.detach().reshape(-1) for p in params])
                broadcast(flat, get_global_rank(group, rank), group)
                for p, piece in zip(params, flat.split([p.numel() for p in params]), strict=True):
                    p.copy_(piece.reshape(p.shape))

    # ---- saving

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the states of all processes, so that ``state_dict`` works at rank ``to``; all call it."""
        every = of_processes(self.process_group, self._numbered(), "consolidate_state_dict()")
        states = {number: state for part in every for number, state in part.items()}
        self._consolidated = dict(sorted(states.items())) if self.process_group.rank() == to else None

    def _numbers(self) -> dict[int, Tensor]:
        return dict(enumerate(p for g in self.param_groups for p in g["params"]))

    def _numbered(self) -> dict[int, Any]:
        """The state of this process by number of parameter."""
        found = {} if self.optim is None else self.optim.state
        return {number: found[p] for number, p in self._numbers().items() if p in found}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in the form of ``optimizer_class``. RuntimeError before ``consolidate_state_dict``."""
        if getattr(self, "_consolidated", None) is None:
            raise RuntimeError(
                at_user_line(
                    "Optimizer state has not been consolidated on this rank. Please call "
                    "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save the global state."
                )
            )
        return {**super().state_dict(), "state": self._consolidated}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a result of ``state_dict``, from any number of processes: options, and this process's part of state."""
        super().load_state_dict(dict(state_dict))
        if self.optim is not None:
            for p in self._numbers().values():
                if p in self.state and self._owner[p] == self.process_group.rank():
                    self.optim.state[p] = self.state[p]
        self.state.clear()


class _Steps(JoinHook):
    """An optimizer's part in the steps of processes with inputs."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step_and_send()


class PostLocalSGDOptimizer(Optimizer):
    """``optim``, after whose steps ``averager`` averages parameters over processes in some calls."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self._show()

    def _show(self) -> None:
        """Expose the attributes of ``optim`` as this optimizer's."""
        self.param_groups, self.defaults, self.state = self.optim.param_groups, self.optim.defaults, self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of ``optim``, and the averager's number of calls as ``step``."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a result of ``state_dict``; a warning if it has no ``step``, which is then 0."""
        self.optim.load_state_dict({k: v for k, v in state_dict.items() if k != "step"})
        self._show()
        if "step" not in state_dict:
            warn_as_pytorch(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0."
            )
        self.averager.step = int(state_dict.get("step", 0))

    def step(self, closure: Callable[[], float | Tensor] | None = None) -> Any:
        """Step ``optim``, then call the averager."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to ``optim``."""
        self.optim.add_param_group(param_group)
