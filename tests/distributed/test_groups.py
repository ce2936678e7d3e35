"""Creation of groups: again at the same address, of few processes, and by copies of models."""

from __future__ import annotations

from tests.distributed.gangs import gang, succeed

AGAIN = """
import tracecomp as torch, tracecomp.distributed as dist
for size in (3, 3, 3):
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size
    dist.destroy_process_group()
"""

FEWER = """
import tracecomp.distributed as dist, os
for size in (3, 2, 3):
    if int(os.environ["RANK"]) < size:
        dist.init_process_group("gloo", world_size=size)
        every = [None] * size
        dist.all_gather_object(every, dist.get_rank())
        assert every == [*range(size)], every
        dist.destroy_process_group()
"""

FEW = """
import tracecomp as torch, tracecomp.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = []
if rank < 2:  # rank 2 does not know of them
    pairs = [dist.new_group([0, 1], use_local_synchronization=True) for _ in range(2)]
ends = dist.new_group([0, 2])
for number, group in enumerate([*pairs, ends]):
    x = torch.tensor([1.0 + rank])
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(x, group=group)
        assert x.item() == (4.0 if group is ends else 3.0), (number, x)
assert len({g.group_name for g in pairs}) == len(pairs)
halves = dist.split_group(split_ranks=[[2, 1], [0]])
x = torch.ones(1)
dist.all_reduce(x, group=halves)
assert x.item() == (1.0 if rank == 0 else 2.0)
inner = dist.split_group(halves, [[0], [1]]) if rank else None
assert inner is None or dist.get_process_group_ranks(inner) == [rank]
assert dist.split_group(split_ranks=[[0, 1]]) is None if rank == 2 else True
"""

COPIES = """
import copy, pickle
import tracecomp as torch, tracecomp.distributed as dist
from tracecomp import nn
from tracecomp.nn.parallel import DistributedDataParallel as DDP
from tracecomp.optim.swa_utils import AveragedModel
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
models = [DDP(nn.Linear(2, 1)), DDP(nn.Linear(2, 1), find_unused_parameters=True, bucket_cap_mb=1)]
if rank < 2:
    models.append(DDP(nn.Linear(2, 1), process_group=pair))
for model in models:
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), AveragedModel(model).module):
        assert type(made) is DDP and made.process_group is model.process_group
        assert made.find_unused_parameters == model.find_unused_parameters
        made(torch.full((1, 2), 1.0 + rank)).sum().backward()
        mean = sum(1.0 + r for r in made.process_group.ranks) / made.process_group.size()
        assert made.module.weight.grad.tolist() == [[mean, mean]], made.module.weight.grad
        assert model.module.weight.grad is None
torch.manual_seed(0)
model = DDP(nn.Linear(2, 1), shards=4)
made = copy.deepcopy(model)
x = made.shard(torch.ones(len(made._plan.own), 2))
made(x).sum().backward()
assert made.module.weight.grad.tolist() == [[1.0, 1.0]] and model.module.weight.grad is None
text = pickle.dumps(models[0])
dist.destroy_process_group()
try:
    pickle.loads(text)
except ValueError as error:
    assert "init_process_group" in str(error)
else:
    raise AssertionError("a model needs a process group")
"""

MESH = """
import tracecomp as torch, tracecomp.distributed as dist
from tracecomp import nn
from tracecomp.distributed.device_mesh import init_device_mesh
from tracecomp.distributed.fsdp import FullyShardedDataParallel
from tracecomp.distributed._composable.fsdp import CPUOffloadPolicy, fully_shard
from tracecomp.distributed.tensor import Shard, distribute_tensor
from tracecomp.nn.parallel import DistributedDataParallel
mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))
grid = init_device_mesh("cpu", (1, 3), mesh_dim_names=("replicate", "shard"))
replicas = init_device_mesh("cpu", (3, 1), mesh_dim_names=("replicate", "shard"))
rank = dist.get_rank()
x = torch.full((2, 4), 1.0 + rank)
def made(shard):
    torch.manual_seed(0)
    return shard(nn.Linear(4, 6))
def gradients(model):
    model(x).sum().backward()
    return [p.grad.full_tensor() for p in model.parameters()]
expected = gradients(made(fully_shard))
for given in (mesh, mesh["dp"], grid, grid["shard"], mesh.get_group()):
    model = made(lambda net: fully_shard(net, mesh=given, offload_policy=CPUOffloadPolicy()))
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), expected, strict=True))
    assert model.weight.device_mesh is given and model.weight.to_local().shape == (2, 4)
assert all(torch.equal(a, b) for a, b in zip(gradients(FullyShardedDataParallel(made(lambda n: n), device_mesh=grid)),
                                             expected, strict=True))
single = replicas["shard"]
model = DistributedDataParallel(made(lambda net: net), device_mesh=single)
model(x).sum().backward()
assert model.process_group is single.get_group() and model.module.weight.grad[0].tolist() == [2.0 * (1 + rank)] * 4
for options in (dict(device_mesh=grid), dict(device_mesh=mesh, process_group=mesh.get_group())):
    try:
        DistributedDataParallel(nn.Linear(1, 1), **options)
    except RuntimeError:
        continue
    raise AssertionError(options)
rows = distribute_tensor(torch.arange(6), mesh, [Shard(0)])
assert rows.to_local().tolist() == [2 * rank, 2 * rank + 1] and rows.device_mesh is mesh
for given, kind in ((replicas, NotImplementedError), ("dp", TypeError)):
    try:
        fully_shard(nn.Linear(4, 6), mesh=given)
    except kind:
        continue
    raise AssertionError(given)
"""


def test_modules_are_sharded_and_replicated_over_a_mesh() -> None:
    succeed(gang(3, "-c", MESH))


def test_groups_are_created_again_at_the_same_address() -> None:
    succeed(gang(3, "-c", AGAIN))


def test_other_numbers_of_processes_meet_at_the_same_address() -> None:
    succeed(gang(3, "-c", FEWER))


def test_few_processes_create_a_group_without_the_others() -> None:
    succeed(gang(3, "-c", FEW))


def test_copies_of_a_data_parallel_model_combine_gradients_in_its_group() -> None:
    succeed(gang(3, "-c", COPIES))
