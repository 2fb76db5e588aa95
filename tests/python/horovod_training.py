"""A rank: optimizers of lockstep.torch, against one process that has all samples."""
import copy
import warnings

import lockstep
import lockstep.torch as hvd
import numpy
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def samples(count, seed=1):
    torch.manual_seed(seed)
    inputs = torch.randn(count, 6)
    return inputs, inputs[:, :3] ** 2


def loss_of(model, inputs, targets):
    return functional.mse_loss(model(inputs), targets)


def part(values, counts):
    return values[sum(counts[:rank]):sum(counts[:rank + 1])]


def assert_equal(model, other, tolerance=1e-6):
    for (name, one), two in zip(model.named_parameters(), other.parameters()):
        assert torch.allclose(one, two, tolerance, tolerance), (name, one, two)


def train(model, optimizer, batches, before=lambda inputs: None):
    for inputs, targets in batches:
        optimizer.zero_grad()
        before(inputs)
        if len(inputs):
            loss_of(model, inputs, targets).backward()
        optimizer.step()
    return model


def batches_of(counts):
    return [samples(sum(counts), seed) for seed in range(4)]


def own(batches, counts):
    return [[part(one, counts) for one in batch] for batch in batches]


def wrapped(model, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1, 0.9),
                                    named_parameters=model.named_parameters(), **options)


def alone(counts):
    model = mlp()
    return train(model, torch.optim.SGD(model.parameters(), 0.1, 0.9), batches_of(counts))


def average_equal_batches():
    counts = [5] * size
    for options in ({}, {"num_groups": 2}, {"gradient_predivide_factor": 2.0},
                    {"groups": None, "op": hvd.Average}):
        model = mlp()
        train(model, wrapped(model, **options), own(batches_of(counts), counts))
        assert_equal(model, alone(counts))
    model = mlp()
    groups = [list(model[0].parameters()), list(model[2].parameters())]
    train(model, wrapped(model, groups=groups), own(batches_of(counts), counts))
    assert_equal(model, alone(counts))
    model = mlp()
    train(model, wrapped(model, compression=hvd.Compression.bf16), own(batches_of(counts), counts))
    assert_equal(model, alone(counts), 0.05)


def weigh_ragged_batches_by_samples():
    counts = [7, 2, 0, 4][:size]
    for before_backward in (True, False):
        model = mlp()
        optimizer = wrapped(model, op=hvd.Samples)
        for inputs, targets in own(batches_of(counts), counts):
            optimizer.zero_grad()
            if before_backward:
                optimizer.samples(len(inputs))
            if len(inputs):
                loss_of(model, inputs, targets).backward()
            optimizer.samples(len(inputs))
            optimizer.step()
        assert_equal(model, alone(counts))
    loss_of(model, *samples(2)).backward()
    refused("expected samples() before step()", optimizer.step)
    optimizer.samples(2)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.samples(4)
    loss_of(model, *samples(2)).backward()
    refused("expected 4 again", optimizer.samples, 2)
    optimizer.step()
    before = model[0].weight.detach().clone()
    optimizer.samples(0)
    optimizer.step()  # no rank had a sample: momentum does not act
    assert torch.equal(before, model[0].weight)
    model = mlp()
    train(model, wrapped(model), own(batches_of(counts), counts))  # an average over ranks differs
    assert not torch.allclose(model[0].weight, alone(counts)[0].weight, 1e-4)


def add_gradients_of_several_passes():
    counts = [4] * size
    model = mlp()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for inputs, targets in own(batches_of(counts), counts):
        optimizer.zero_grad()
        for half in (slice(0, 2), slice(2, 4)):
            (loss_of(model, inputs[half], targets[half]) / 2).backward()
        optimizer.step()
    assert_equal(model, alone(counts))
    for _ in range(2):
        loss_of(model, *samples(2)).backward()
    try:
        loss_of(model, *samples(2)).backward()
    except AssertionError as error:
        assert "backward_passes_per_step" in str(error)
    else:
        raise AssertionError("a third pass was not refused")
    refused("2.bias changed while it was reduced", optimizer.step)


def reduce_once():
    """step() after synchronize() does not reduce again, with a warning."""
    model = mlp()
    optimizer = wrapped(model, op=hvd.Sum)
    loss_of(model, *samples(2, rank)).backward()
    optimizer.synchronize()
    total = model[0].weight.grad.clone()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        optimizer.step()
    assert "skip_synchronize" in str(found[0].message)
    assert torch.equal(model[0].weight.grad, total)
    loss_of(model, *samples(2, rank)).backward()
    try:
        optimizer.zero_grad()
    except AssertionError as error:
        assert "being reduced" in str(error)
    else:
        raise AssertionError("gradients were changed while they were reduced")
    optimizer.step()


def train_two_networks_in_turns():
    counts = [3] * size
    generator, judge = mlp(), nn.Linear(3, 1)
    hvd.broadcast_parameters(judge.state_dict(), 0)
    others = copy.deepcopy((generator, judge))
    inputs = samples(sum(counts))[0]

    def steps(networks, wrap, mine):
        first, second = (wrap(one) for one in networks)
        for _ in range(3):
            for optimizer, sign in ((first, 1), (second, -1)):
                first.zero_grad(), second.zero_grad()
                for one, trained in zip(networks, (sign == 1, sign == -1)):
                    one.requires_grad_(trained)
                (sign * networks[1](networks[0](mine)).mean()).backward()
                optimizer.step()

    steps((generator, judge), wrapped, part(inputs, counts))
    steps(others, lambda model: torch.optim.SGD(model.parameters(), 0.1, 0.9), inputs)
    assert_equal(generator, others[0])
    assert_equal(judge, others[1])
    # Both at once, with the same names of parameters.
    one, two = nn.Linear(6, 1), nn.Linear(6, 1)
    first, second = wrapped(one), wrapped(two)
    (one(inputs) + two(inputs)).sum().backward()
    first.step(), second.step()


def leave_out_parameters():
    model = nn.ModuleDict({"always": nn.Linear(6, 3), "odd": nn.Linear(3, 3)})
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1),
                                         named_parameters=model.named_parameters())
    for step in range(3):
        hidden = model["always"](samples(3)[0])
        if (rank + step) % 2:
            hidden = model["odd"](hidden)
        optimizer.zero_grad()
        hidden.sum().backward()
        optimizer.step()
    for one in model.parameters():
        assert torch.equal(one, hvd.broadcast(one.detach(), 0))


def share_a_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 4), nn.Linear(4, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, words):
            return self.head(self.embed(words))

    torch.manual_seed(0)
    model, other = (lambda one: (one, copy.deepcopy(one)))(Tied())
    words = torch.arange(2 * size) % 11
    for network, optimizer, mine in (
            (model, wrapped(model), words[2 * rank:2 * rank + 2]),
            (other, torch.optim.SGD(other.parameters(), 0.1, 0.9), words)):
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(network(mine), mine).backward()
            optimizer.step()
    assert_equal(model, other)


def compute_in_bfloat16():
    model = mlp()
    optimizer = wrapped(model)
    for inputs, targets in own(batches_of([4] * size), [4] * size):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, inputs, targets)
        loss.backward()
        assert model[0].weight.grad.dtype == torch.float32
        optimizer.step()
    assert torch.equal(model[0].weight, hvd.broadcast(model[0].weight.detach(), 0))


def join_early():
    model = mlp()
    optimizer = wrapped(model)
    for _ in range(2 + rank):
        optimizer.zero_grad()
        loss_of(model, *samples(3)).backward()
        optimizer.step()
    assert hvd.join() == size - 1
    hvd.broadcast_parameters(model.state_dict(), size - 1)
    assert hvd.allreduce(torch.ones(1)).item() == 1  # without a name, also afterwards


def keep_sparse_gradients():
    for as_dense in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(9, 2, sparse=True)
        other = copy.deepcopy(table)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), 0.5),
                                             sparse_as_dense=as_dense)
        plain = torch.optim.SGD(other.parameters(), 0.5)
        for _ in range(2):
            for network, one, mine in ((table, optimizer, torch.tensor([rank, 8])),
                                       (other, plain, torch.tensor([*range(size), *[8] * size]))):
                one.zero_grad()
                (network(mine).sum() / (1 if network is table else size)).backward()
                assert network.weight.grad.is_sparse
                one.step()
        assert_equal(table, other)


def normalize_over_all_ranks():
    counts = [3, 1, 5, 2][:size]
    torch.manual_seed(3)
    inputs = torch.randn(sum(counts), 4, 2)
    for momentum in (0.1, None):
        norm, plain = hvd.SyncBatchNorm(4, momentum=momentum), nn.BatchNorm1d(4, momentum=momentum)
        mine = part(inputs, counts).clone().requires_grad_()
        everything = inputs.clone().requires_grad_()
        for _ in range(2):
            result, whole = norm(mine), plain(everything)
        (result * result.detach().cos()).sum().backward()
        (whole * whole.detach().cos()).sum().backward()
        assert torch.allclose(result, part(whole, counts), 1e-5, 1e-6)
        assert torch.allclose(norm.running_mean, plain.running_mean, 1e-5)
        assert torch.allclose(norm.running_var, plain.running_var, 1e-5)
        assert torch.allclose(mine.grad, part(everything.grad, counts), 1e-4, 1e-5)
        norm.eval(), plain.eval()
        assert torch.allclose(norm(mine), part(plain(everything), counts), 1e-5, 1e-6)


    half = hvd.SyncBatchNorm(4).to(torch.float32)(inputs[:2].to(torch.bfloat16))
    assert half.dtype == torch.bfloat16
    mine.grad = None
    gradient, = torch.autograd.grad(norm.train()(mine).pow(3).sum(), mine, create_graph=True)
    try:
        gradient.sum().backward()
    except RuntimeError:  # a second derivative is refused
        pass
    else:
        raise AssertionError("a second derivative was wrong")
    copy.deepcopy(norm)


def stay_alike_in_unusual_steps():
    """Each function changes a model on all ranks; then their weights are the same."""
    def step(model, optimizer, *arguments):
        optimizer.zero_grad()
        loss_of(model, *samples(3, rank)).backward()
        optimizer.step(*arguments)

    def schedule(model):
        base = torch.optim.SGD(model.parameters(), 0.1)
        before = torch.optim.lr_scheduler.StepLR(base, 1, 0.5)
        optimizer = hvd.DistributedOptimizer(base, model.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, 0)
        for _ in range(2):
            step(model, optimizer)
            before.step()
        assert optimizer.param_groups[0]["lr"] == 0.025

    def freeze(model):
        optimizer = wrapped(model, num_groups=1)
        step(model, optimizer)
        model[0].weight.requires_grad_(False)
        step(model, optimizer)
        model[0].weight.requires_grad_(True)
        step(model, optimizer)

    def take_a_closure(model):
        optimizer = wrapped(model)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, *samples(3, rank))
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)

    def hook_the_step(model):
        calls = []
        optimizer = wrapped(model)
        hvd.broadcast_optimizer_state(optimizer, 0)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.register_step_post_hook(lambda *_: calls.append(None))
        step(model, optimizer)
        assert len(calls) == 1

    def add_parameters(model):
        first, last = model[0].parameters(), model[2].parameters()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(first, 0.1))
        optimizer.add_param_group({"params": list(last)})
        step(model, optimizer)
        step(model, optimizer)

    def wrap_again(model):
        optimizer = wrapped(model)
        step(model, optimizer)
        del optimizer
        step(model, wrapped(model))

    def recover(model):
        optimizer = wrapped(model)
        loss_of(model, *samples(3, rank)).backward()
        weight = model[0].weight
        weight.grad = torch.zeros_like(weight)
        try:
            hvd.allreduce(torch.ones(1 + rank), name="differs")
        except hvd.HorovodInternalError:
            pass
        optimizer.load_state_dict(optimizer.state_dict())
        step(model, optimizer)

    for function in (schedule, freeze, take_a_closure, hook_the_step, add_parameters, wrap_again,
                     recover):
        model = mlp()
        start = copy.deepcopy(model)
        function(model)
        for one, first in zip(model.parameters(), start.parameters()):
            assert torch.equal(one, hvd.broadcast(one.detach(), 0)), function.__name__
            assert not torch.equal(one, first), function.__name__
    torch.manual_seed(0)
    table, layer = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*table.parameters(),
                                                          *layer.parameters()], 0.1), num_groups=1)
    layer(table(torch.tensor([rank]))).sum().backward()
    optimizer.step()
    for one in (table.weight, layer.weight):
        assert torch.equal(one, hvd.broadcast(one.detach(), 0))


def copy_an_optimizer():
    model = mlp()
    optimizer = wrapped(model)
    if rank == 0:
        optimizer.param_groups[0]["lr"] = 0.25
        optimizer.state[model[0].weight]["momentum_buffer"] = torch.ones(16, 6)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.state[model[0].weight]["momentum_buffer"].sum() == 96
    half = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([half], numpy.float64(0.5) if rank == 0 else 0.1, 0.9)
    optimizer.state[half]["momentum_buffer"] = torch.full((2,), 1.001 + rank)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.state[half]["momentum_buffer"][0] == torch.tensor(1.001)
    assert optimizer.param_groups[0]["lr"] == 0.5
    refused("LBFGS", hvd.broadcast_optimizer_state, torch.optim.LBFGS(model.parameters()), 0)


def refused(words, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except (ValueError, hvd.HorovodInternalError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def refuse_bad_input():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ones = torch.ones(2)
    refused("Adasum", hvd.allreduce, ones, op=hvd.Adasum)
    refused("Adasum", hvd.DistributedOptimizer, optimizer, op=hvd.Adasum)
    refused("got both", hvd.allreduce, ones, average=True, op=hvd.Sum)
    refused("Samples", hvd.allreduce, ones, op=hvd.Samples)
    refused("got twice: w", hvd.DistributedOptimizer, optimizer,
            named_parameters=[("w", one) for one in model.parameters()])
    refused("got 3 without", hvd.DistributedOptimizer, optimizer,
            named_parameters=[("w", model[0].weight)])
    refused("op=Average for a gradient_predivide_factor", hvd.DistributedOptimizer, optimizer,
            op=hvd.Sum, gradient_predivide_factor=2.0)
    refused("a root among", hvd.broadcast, ones, size)
    refused(f"multiple of {size}", hvd.alltoall, torch.ones(size + 1))
    refused("one number", hvd.allgather, torch.tensor(1))
    refused("functions of lockstep.torch", lockstep.barrier)
    refused("ranks from 0", hvd.add_process_set, [size])
    refused("elements are apart in memory", hvd.allreduce_, torch.ones(1).expand(3))
    refused("defined for, got torch.uint16", hvd.allreduce, torch.ones(2, dtype=torch.uint16))
    refused("fp16, whose range", hvd.DistributedOptimizer, optimizer, op=hvd.Samples,
            compression=hvd.Compression.fp16)
    for wrong, words in (({"backward_passes_per_step": 0}, "at least one backward pass"),
                         ({"gradient_predivide_factor": 0}, "a positive"), ({"op": "sum"}, "'sum'"),
                         ({"compression": "fp16"}, "one of Compression"),
                         ({"process_set": [0]}, "a ProcessSet")):
        refused(words, hvd.DistributedOptimizer, optimizer, **wrong)
    refused("an optimizer, got", hvd.DistributedOptimizer, model)
    refused("not wrapped yet", hvd.DistributedOptimizer, hvd.DistributedOptimizer(optimizer))
    refused("op=Samples", hvd.DistributedOptimizer(optimizer).samples, 2)
    refused("a number of samples", wrapped(model, op=hvd.Samples).samples, 1.5)
    refused("expected a tensor, got float", hvd.allreduce, 3.0)
    refused("model.state_dict(), got the model", hvd.broadcast_parameters, model, 0)
    changed = wrapped(mlp())
    own = changed.param_groups[0]["params"]
    sum(one.sum() for one in own).backward()
    nn.utils.clip_grad_norm_(own, 0.1)
    refused("changed while it was reduced", changed.step)
    groups = [{"params": [one]} for one in model.parameters()]
    differs = torch.optim.SGD(groups if rank == 0 else model.parameters(), 0.1)
    if rank > 0:
        refused("groups of as many parameters", hvd.broadcast_optimizer_state, differs, 0)
    else:
        hvd.broadcast_optimizer_state(differs, 0)
    refused("on rank 0 that cannot", hvd.broadcast_object, lambda: 1)
    refused("that no other set has", hvd.add_process_set, range(size))
    refused("float32 [1], cpu, Average, 1.0, 1.0 on rank 0 and float32 [2]", hvd.allreduce,
            torch.ones(rank + 1 if rank < 2 else 1), name="differs")
    assert hvd.allreduce(ones, name="differs").sum() == 2


for use in (average_equal_batches, weigh_ragged_batches_by_samples,
            add_gradients_of_several_passes, reduce_once, train_two_networks_in_turns,
            leave_out_parameters, stay_alike_in_unusual_steps, share_a_parameter,
            compute_in_bfloat16, join_early, keep_sparse_gradients, normalize_over_all_ranks,
            copy_an_optimizer, refuse_bad_input):
    use()
hvd.shutdown()
print(f"rank {rank} of {size}: all right", flush=True)
