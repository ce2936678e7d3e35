"""Loss functions, the own ones of the documents, regularisation."""

import tracecomp as torch
import tracecomp.nn.functional as F
from tests.seeds.harness import integers, normal, program, settle
from tracecomp import nn


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def with_gradient(run, criterion, inputs, *targets):
    """The loss and the gradients of its inputs."""

    def compute(inputs, targets):
        loss = criterion(*inputs, *targets)
        return loss.detach(), torch.autograd.grad(loss, inputs)

    return run(compute, [x.requires_grad_() for x in inputs], list(targets))


@program("002:1268-1366, 002:4010-4011")
def losses_of_the_table(run):
    m = nn.LogSoftmax(dim=1)
    classes = torch.tensor([1, 0, 4])
    signs = tensor(3, seed=5).sign()
    ones, weights = tensor(6, seed=1).gt(0).float(), tensor(2, 3, seed=1).softmax(1)
    return {
        "L1": with_gradient(run, nn.L1Loss(), [tensor(3, 5)], tensor(3, 5, seed=1)),
        "MSE": with_gradient(run, nn.MSELoss(), [tensor(3, 5)], tensor(3, 5, seed=1)),
        "NLL": with_gradient(run, lambda x, t: nn.NLLLoss()(m(x), t), [tensor(3, 5)], classes),
        "CE": with_gradient(run, nn.CrossEntropyLoss(), [tensor(3, 5)], classes),
        "BCE": with_gradient(run, lambda x, t: nn.BCELoss()(torch.sigmoid(x), t), [tensor(6)], ones),
        "logits": with_gradient(run, nn.BCEWithLogitsLoss(), [tensor(6)], ones),
        "hinge": with_gradient(run, nn.HingeEmbeddingLoss(), [tensor(3)], signs),
        "ranking": with_gradient(run, nn.MarginRankingLoss(), [tensor(3), tensor(3, seed=1)], signs),
        "triplet": with_gradient(
            run, nn.TripletMarginLoss(margin=1.0, p=2), [tensor(10, 16), tensor(10, 16, seed=1), tensor(10, 16, seed=2)]
        ),
        "KL": with_gradient(
            run, lambda x, t: nn.KLDivLoss(reduction="batchmean")(m(x), t), [tensor(2, 3)], weights
        ),
    }  # fmt: skip


@program("002:1275, 002:4450")
def targets_are_checked(run):
    refused = []
    for target in (torch.tensor([1, 0, 7]), torch.tensor([1, 0])):
        try:
            nn.CrossEntropyLoss()(tensor(3, 5), target)
        except (IndexError, ValueError) as error:
            refused.append(type(error).__name__)
    return refused, run(nn.CrossEntropyLoss(), tensor(3, 5), torch.tensor([1, -100, 2]))


def my_custom_loss(my_outputs, my_labels):
    my_batch_size = my_outputs.size()[0]
    my_outputs = F.log_softmax(my_outputs, dim=1)
    my_outputs = my_outputs[range(my_batch_size), my_labels]
    return -torch.sum(my_outputs) / my_batch_size


class DiceLoss(nn.Module):
    def __init__(self, weight=None, size_average=True):
        super().__init__()

    def forward(self, inputs, targets, smooth=1):
        inputs = F.sigmoid(inputs)
        inputs = inputs.view(-1)
        targets = targets.view(-1)
        intersection = (inputs * targets).sum()
        dice = (2.0 * intersection + smooth) / (inputs.sum() + targets.sum() + smooth)
        return 1 - dice


class MyLoss(torch.nn.Module):
    def forward(self, x, y):
        return torch.mean((x - y) ** 2)


@program("002:1392-1419, 002:4015-4027")
def own_losses(run):
    masks = tensor(2, 4, seed=1).gt(0).float()
    return (
        with_gradient(run, my_custom_loss, [tensor(3, 5)], torch.tensor([1, 0, 4])),
        with_gradient(run, DiceLoss(), [tensor(2, 4)], masks),
        with_gradient(run, MyLoss(), [tensor(2, 4)], masks),
    )


class LSR(nn.Module):
    def __init__(self, e=0.1, reduction="mean"):
        super().__init__()
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.e = e
        self.reduction = reduction

    def _one_hot(self, labels, classes, value=1):
        one_hot = torch.zeros(labels.size(0), classes)
        labels = labels.view(labels.size(0), -1)
        value_added = torch.Tensor(labels.size(0), 1).fill_(value)
        value_added = value_added.to(labels.device)
        one_hot = one_hot.to(labels.device)
        one_hot.scatter_add_(1, labels, value_added)
        return one_hot

    def _smooth_label(self, target, length, smooth_factor):
        one_hot = self._one_hot(target, length, value=1 - smooth_factor)
        one_hot += smooth_factor / (length - 1)
        return one_hot.to(target.device)

    def forward(self, x, target):
        if x.size(0) != target.size(0):
            raise ValueError(f"Expected input batchsize ({x.size(0)}) to match target batch_size({target.size(0)})")
        if x.dim() < 2:
            raise ValueError(f"Expected input tensor to have least 2 dimensions(got {x.size(0)})")
        if x.dim() != 2:
            raise ValueError(f"Only 2 dimension tensor are implemented, (got {x.size()})")
        smoothed_target = self._smooth_label(target, x.size(1), self.e)
        x = self.log_softmax(x)
        loss = torch.sum(-x * smoothed_target, dim=1)
        if self.reduction == "none":
            return loss
        if self.reduction == "sum":
            return torch.sum(loss)
        if self.reduction == "mean":
            return torch.mean(loss)
        raise ValueError("unrecognized option, expect reduction to be one of none, mean, sum")


@program("002:4033-4118")
def label_smoothing_module(run):
    x, target = tensor(4, 5), torch.tensor([0, 2, 4, 1])
    errors = []
    for args, reduction in (((x, target[:2]), "mean"), ((x[0], torch.zeros(5)), "mean"), ((x, target), "other")):
        try:
            LSR(reduction=reduction)(*args)
        except ValueError as error:
            errors.append(str(error))
    found = [with_gradient(run, LSR(reduction=r), [tensor(4, 5)], target) for r in ("mean", "sum")]
    return errors, found, run(LSR(reduction="none"), x, target)


@program("002:4123-4137, 002:4163-4169")
def smoothing_and_l1_in_a_step(run):
    model = settle(nn.Linear(6, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    N, C = 4, 5

    @run.compile
    def step(images, labels):
        smoothed_labels = torch.full(size=(N, C), fill_value=0.1 / (C - 1))
        smoothed_labels.scatter_(dim=1, index=torch.unsqueeze(labels, dim=1), value=0.9)
        log_prob = torch.nn.functional.log_softmax(model(images), dim=1)
        loss = -torch.sum(log_prob * smoothed_labels) / N
        for param in model.parameters():
            loss += torch.sum(torch.abs(param))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    labels = torch.from_numpy(integers(C, N))
    return [step(tensor(N, 6, seed=n), labels) for n in range(5)]


@program("002:4139-4159", torch=False)
def mixup(run):
    model = settle(nn.Linear(6, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = nn.CrossEntropyLoss()
    beta_distribution = torch.distributions.beta.Beta(0.4, 0.4)

    @run.compile
    def step(images, labels, lambda_):
        index = torch.randperm(images.size(0))
        mixed_images = lambda_ * images + (1 - lambda_) * images[index, :]
        label_a, label_b = labels, labels[index]
        scores = model(mixed_images)
        loss = lambda_ * loss_function(scores, label_a) + (1 - lambda_) * loss_function(scores, label_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for n in range(30):
        lambda_ = beta_distribution.sample([])
        assert 0 <= lambda_.item() <= 1
        losses.append(float(step(tensor(8, 6, seed=n % 2), torch.from_numpy(integers(5, 8)), lambda_)))
    assert sum(losses[-10:]) < sum(losses[:10])
