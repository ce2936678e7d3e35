"""Modules: registration, containers, the networks of the documents."""

import collections

import tracecomp as torch
import tracecomp.nn.functional as F
from tests.seeds.harness import integers, normal, program, settle
from tracecomp import nn, optim


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def trained(run, net, x, steps=3):
    """Output before, losses of a few steps on the sum of squares, output after."""
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = net(x).detach()
    stepped = run.compile(step)
    losses = [stepped(x) for _ in range(steps + 2)]
    return before, losses, net(x).detach()


class LeNet(nn.Module):
    def __init__(self):
        super(LeNet, self).__init__()  # noqa: UP008
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@program("002:915-963, 002:1372-1390, 002:1037-1047")
def lenet(run):
    net = settle(LeNet())
    params = list(net.parameters())
    input = tensor(1, 1, 32, 32)
    out = run(lambda x: net(x).detach(), input)
    net.zero_grad()
    net(input).backward(tensor(1, 10))
    first = net.conv1.bias.grad.clone()
    criterion = nn.MSELoss()
    target = tensor(10, seed=1).view(1, -1)
    net.zero_grad()
    assert net.conv1.bias.grad is None
    loss = criterion(net(input), target)
    assert loss.grad_fn.next_functions[0][0].next_functions[0][0] is not None
    loss.backward()
    return str(net), len(params), params[0].size(), out, first, net.conv1.bias.grad, trained(run, net, input)


class CifarNet(nn.Module):
    def __init__(self, l1=120, l2=84):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, l1)
        self.fc2 = nn.Linear(l1, l2)
        self.fc3 = nn.Linear(l2, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@program("002:742-770, 004:27-28")
def cifar_net(run):
    model = settle(CifarNet())
    model.train(mode=True)
    modes = [model.training, model.conv1.training]
    model.eval()
    return [*modes, model.training, model.fc3.training], trained(run, model, tensor(2, 3, 32, 32))


class MyNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=3, stride=1, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.fc = nn.Linear(8 * 14 * 14, 32)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.xavier_normal_(m.weight)
            elif isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(x.view(x.size(0), -1))


@program("002:779-810")
def network_with_own_initialisation(run):
    net = MyNetwork()
    assert bool((net.bn1.weight == 1).all()) and bool((net.fc.bias == 0).all())
    return trained(run, settle(net), tensor(2, 3, 28, 28)), net.bn1.running_mean, net.bn1.num_batches_tracked


class ConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, stride=1, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2))  # fmt: skip
        self.layer2 = nn.Sequential(
            nn.Conv2d(16, 32, kernel_size=5, stride=1, padding=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2))  # fmt: skip
        self.fc = nn.Linear(7 * 7 * 32, num_classes)

    def forward(self, x):
        out = self.layer2(self.layer1(x))
        return self.fc(out.reshape(out.size(0), -1))


@program("002:3505-3530")
def two_blocks(run):
    return trained(run, settle(ConvNet()), tensor(2, 1, 28, 28)), str(ConvNet())


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1 = nn.Conv2d(in_channels=1, out_channels=16, kernel_size=5, padding=0)
        self.relu1 = nn.ReLU()
        self.maxpool1 = nn.MaxPool2d(kernel_size=2)
        self.cnn2 = nn.Conv2d(in_channels=16, out_channels=32, kernel_size=5, padding=0)
        self.relu2 = nn.ReLU()
        self.maxpool2 = nn.MaxPool2d(kernel_size=2)
        self.linear1 = nn.Linear(4 * 4 * 32, 10)

    def forward(self, x):
        out = self.maxpool1(self.relu1(self.cnn1(x)))
        out = self.maxpool2(self.relu2(self.cnn2(out)))
        return self.linear1(out.view(x.size(0), -1))


class FunctionalCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1_weight = nn.Parameter(torch.rand(16, 1, 5, 5))
        self.bias1_weight = nn.Parameter(torch.rand(16))
        self.cnn2_weight = nn.Parameter(torch.rand(32, 16, 5, 5))
        self.bias2_weight = nn.Parameter(torch.rand(32))
        self.linear1_weight = nn.Parameter(torch.rand(10, 4 * 4 * 32))
        self.bias3_weight = nn.Parameter(torch.rand(10))

    def forward(self, x):
        out = F.max_pool2d(F.relu(F.conv2d(x, self.cnn1_weight, self.bias1_weight)), 2)
        out = F.max_pool2d(F.relu(F.conv2d(out, self.cnn2_weight, self.bias2_weight)), 2)
        return F.linear(out.view(x.size(0), -1), self.linear1_weight, self.bias3_weight)


@program("002:3633-3690")
def layers_and_functions(run):
    x = tensor(2, 1, 28, 28)
    one, two = settle(CNN()), settle(FunctionalCNN())
    a, b = run(lambda x: one(x).detach(), x), run(lambda x: two(x).detach(), x)
    assert torch.allclose(a, b, atol=1e-5)
    return a, b


class DropNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(512, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc3 = nn.Linear(256, 2)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(F.dropout(self.fc2(x), 0.5))
        return F.dropout(self.fc3(x), 0.5)


@program("002:3607-3624, 002:3696, 002:722-738")
def the_trap_of_functional_dropout(run):
    net = settle(DropNet()).eval()
    drop = nn.Dropout(0.5)
    x = tensor(64, 512)
    out = run.compile(lambda x: (net(x).detach(), drop(x)))
    first = out(x)
    for _ in range(2):
        second = out(x)
        assert bool((second[0] == 0).any()) and not torch.equal(first[0], second[0])
        assert bool((second[1] == 0).any())
    drop.eval()
    for _ in range(2):
        assert torch.equal(out(x)[1], x)
    return drop(x)


@program("002:3360-3444")
def nested_blocks(run):
    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(20, 256)
            self.out = nn.Linear(256, 10)

        def forward(self, X):
            return self.out(F.relu(self.hidden(X)))

    class MySequential(nn.Module):
        def __init__(self, *args):
            super().__init__()
            for idx, module in enumerate(args):
                self._modules[str(idx)] = module

        def forward(self, X):
            for block in self._modules.values():
                X = block(X)
            return X

    class FixedHiddenMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.rand_weight = torch.from_numpy(normal(20, 20)).abs()
            self.linear = nn.Linear(20, 20)

        def forward(self, X):
            X = self.linear(X)
            X = F.relu(torch.mm(X, self.rand_weight) + 1)
            X = self.linear(X)
            while X.abs().sum() > 1:
                X /= 2
            return X.sum()

    class NestMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.linear = nn.Linear(32, 16)

        def forward(self, X):
            return self.linear(self.net(X))

    X = tensor(2, 20)
    results = []
    for net in (
        nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10)), MLP(),
        MySequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10)), FixedHiddenMLP(),
        nn.Sequential(NestMLP(), nn.Linear(16, 20), FixedHiddenMLP()),
    ):  # fmt: skip
        net = settle(net)
        results.append(run(lambda X, net=net: net(X).detach(), X))
    return results, str(net)


@program("002:1871-1927")
def ways_to_use_layers(run):
    input = tensor(3, 5)
    sigmoid = nn.Sigmoid()
    three = run(lambda x: (sigmoid(x), F.sigmoid(x), torch.sigmoid(x)), input)
    assert torch.equal(three[0], three[1]) and torch.equal(three[1], three[2])
    w = nn.Parameter(torch.Tensor([1.0, 1.0]))
    assert w.grad is None and w.data.data_ptr() == w.data_ptr() and w.is_leaf
    model = settle(nn.Sequential(nn.Linear(5, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Sigmoid(), nn.Flatten(0, -1)))
    lazy = nn.LazyLinear(4)
    lazy(input)
    return three, str(w), w.detach(), str(model), run(lambda x: model(x).detach(), input), lazy.weight.shape


class Kit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x):
        return torch.sigmoid(self.layer(x)).flatten()

    def loss_func(self, y_pred, y_true):
        return nn.BCELoss()(y_pred, y_true)

    def metric_func(self, y_pred, y_true):
        return ((y_pred > 0.5) == (y_true > 0.5)).float().mean()

    @property
    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=0.001)


@program("002:1907-1927")
def training_kit_in_one_class(run):
    model = settle(Kit())
    optimizer = model.optimizer
    x, y = tensor(8, 5), torch.from_numpy(integers(2, 8)).float()

    @run.compile
    def step(x, y):
        pred = model(x)
        loss = model.loss_func(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), model.metric_func(pred.detach(), y)

    return [step(x, y) for _ in range(5)]


@program("002:1807-1857, 004:1-28")
def containers_and_registration(run):
    listed = nn.ModuleList([nn.Linear(4, 4)])
    listed.append(nn.ReLU())
    listed.extend([nn.Linear(4, 2)])
    listed.insert(1, nn.Tanh())
    table = nn.ModuleDict({"a": nn.Linear(2, 2)})
    table["b"] = nn.ReLU()
    names = list(table.keys()), [type(m).__name__ for m in table.values()], len(table.items())
    table.pop("b")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(4, 4)]
            self.listed = listed
            self.table = table
            self.register_buffer("count", torch.zeros(1))
            self.add_module("added", nn.Linear(1, 1))

        def forward(self, x):
            for layer in self.listed:
                x = layer(x)
            return self.table["a"](x)

    model = settle(Model())
    try:
        model.listed[0].weight = torch.zeros(4, 4)
    except TypeError as error:
        refused = str(error)
    sliced = nn.Sequential(collections.OrderedDict(one=nn.Linear(2, 2), two=nn.ReLU(), three=nn.Linear(2, 2)))[:2]
    return (
        [n for n, _ in model.named_parameters()], [n for n, _ in model.named_children()],
        [n for n, _ in model.named_modules()], list(model.state_dict()), [n for n, _ in model.named_buffers()],
        names, refused, str(model), str(sliced), run(lambda x: model(x).detach(), tensor(3, 4)),
        sum(torch.numel(p) for p in model.parameters()),
    )  # fmt: skip


@program("002:3447-3498")
def embeddings(run):
    embedding = settle(nn.Embedding(10, 3))
    input = torch.LongTensor([[1, 2, 4, 5], [4, 3, 2, 9]])
    padded = settle(nn.Embedding(10, 3, padding_idx=0))
    with torch.no_grad():
        padded.weight[0] = torch.ones(3)
    limited = settle(nn.Embedding(10, 3, max_norm=0.5, norm_type=2.0))
    scaled = settle(nn.Embedding(10, 3, scale_grad_by_freq=True))

    def look(input):
        weights = [embedding.weight, padded.weight, scaled.weight]
        total = sum((layer(input) ** 2).sum() for layer in (embedding, padded, scaled))
        return torch.autograd.grad(total, weights)

    indices = torch.LongTensor([[0, 2, 0, 5]])
    return (
        run(lambda x: embedding(x).detach(), input), run(lambda x: padded(x).detach(), indices),
        limited(input).detach(), run(look, indices), str(padded), padded.weight.detach(),
    )  # fmt: skip


@program("002:3535-3544")
def bilinear_pooling(run):
    N, D, H, W = 2, 6, 4, 4

    def pool(X):
        X = torch.reshape(X, (N, D, H * W))
        X = torch.bmm(X, torch.transpose(X, 1, 2)) / (H * W)
        assert X.size() == (N, D, D)
        X = torch.reshape(X, (N, D * D))
        X = torch.sign(X) * torch.sqrt(torch.abs(X) + 1e-5)
        return torch.nn.functional.normalize(X)

    return run(pool, tensor(N, D, H, W))


def convert_to_sync(module, process_group=None):
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        sync_bn = torch.nn.SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group
        )
        sync_bn.running_mean = module.running_mean
        sync_bn.running_var = module.running_var
        if module.affine:
            sync_bn.weight = nn.Parameter(module.weight.clone().detach())
            sync_bn.bias = nn.Parameter(module.bias.clone().detach())
        return sync_bn
    for name, child_module in module.named_children():
        setattr(module, name, convert_to_sync(child_module, process_group=process_group))
    return module


@program("002:3546-3576")
def synchronised_batch_norm(run):
    model = settle(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm2d(4))))
    x = tensor(2, 3, 6, 6)
    model.eval()
    before = model(x).detach()
    model = convert_to_sync(model).eval()
    assert isinstance(model[1], nn.SyncBatchNorm) and isinstance(model[2][0], nn.SyncBatchNorm)
    return before, run(lambda x: model(x).detach(), x)


class RunningAverage(torch.nn.Module):
    def __init__(self, num_features, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(num_features))

    def forward(self, X):
        current = X.mean(0)
        self.running_mean += self.momentum * (current - self.running_mean)
        return X - self.running_mean


@program("002:3578-3591")
def own_running_average(run):
    model = RunningAverage(4)
    forward = run.compile(model)
    outputs = [forward(tensor(8, 4, seed=n)) for n in range(4)]
    return outputs, model.running_mean, list(model.state_dict())


@program("002:3733-3764")
def initialisation_and_extraction(run):
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                torch.nn.init.constant_(layer.bias, val=0.0)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.constant_(layer.weight, val=1.0)
            torch.nn.init.constant_(layer.bias, val=0.0)
        elif isinstance(layer, torch.nn.Linear):
            torch.nn.init.xavier_normal_(layer.weight)
    assert 0.05 < float(model[0].weight.std()) < 0.4
    model[0].weight = torch.nn.Parameter(tensor(6, 3, 3, 3))
    new_model = nn.Sequential(*list(model.children())[:2])
    conv_model = nn.Sequential()
    for layer in model.named_modules():
        if isinstance(layer[1], nn.Conv2d):
            conv_model.add_module("conv" + layer[0], layer[1])
    new_model.eval()
    x = tensor(2, 3, 8, 8)
    return run(lambda x: (new_model(x).detach(), conv_model(x).detach()), x), str(conv_model)


class FeatureExtractor(torch.nn.Module):
    def __init__(self, pretrained_model, layers_to_extract):
        torch.nn.Module.__init__(self)
        self._model = pretrained_model
        self._model.eval()
        self._layers_to_extract = set(layers_to_extract)

    def forward(self, x):
        with torch.no_grad():
            conv_representation = []
            for name, layer in self._model.named_children():
                x = layer(x)
                if name in self._layers_to_extract:
                    conv_representation.append(x)
            return conv_representation


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.flatten(self.pool(self.layer2(self.layer1(x)))))


@program("002:4366-4419, 002:1473-1487, 002:4421-4440")
def features_and_fine_tuning(run):
    model, x = settle(Backbone()), tensor(2, 3, 9, 9)
    body = torch.nn.Sequential(collections.OrderedDict(list(model.named_children())[:-1]))
    inner = run(FeatureExtractor(body, {"layer1", "layer2", "pool"}), x)
    for param in model.parameters():
        param.requires_grad = False
    model.fc = settle(nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
    frozen = model.layer1[0].weight.detach().clone()

    @run.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x) for _ in range(4)]
    assert torch.equal(frozen, model.layer1[0].weight) and model.layer1[0].weight.grad is None
    finetuned = list(map(id, model.fc.parameters()))
    conv_parameters = (p for p in model.parameters() if id(p) not in finetuned)
    parameters = [{"params": conv_parameters, "lr": 1e-3}, {"params": model.fc.parameters()}]
    groups = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4).param_groups
    return inner, losses, [(g["lr"], len(g["params"])) for g in groups]


@program("000:285, 003:498, 002:4445")
def recurrence(run):
    lstm = settle(nn.LSTM(4, 5, num_layers=2, batch_first=True))
    rnn = settle(nn.RNN(4, 5))
    weights = list(lstm.parameters())

    def unrolled(x, h):
        for t in range(x.shape[0]):
            h = torch.tanh(x[t] @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + h @ rnn.weight_hh_l0.T + rnn.bias_hh_l0)
        return h.detach()

    def loss(x):
        out, (h, _) = lstm(x)
        return torch.autograd.grad((out**2).sum() + h.sum(), weights)

    x = tensor(6, 3, 4)
    by_hand = run(unrolled, x, torch.zeros(3, 5))
    assert torch.allclose(by_hand, rnn(x)[1][0].detach(), atol=1e-5)
    return run(lambda x: [t.detach() for t in (lstm(x)[0], *lstm(x)[1])], x), run(loss, x), by_hand


@program("000:163, 000:183, 000:299-303")
def two_networks(run):
    generator = settle(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
    judge = settle(nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)))
    generator_opt = optim.Adam(generator.parameters(), lr=0.01)
    judge_opt = optim.Adam(judge.parameters(), lr=0.02)
    criterion = nn.BCEWithLogitsLoss()

    @run.compile
    def step(real, noise):
        fake = generator(noise)
        judged = criterion(judge(real), torch.ones(8, 1)) + criterion(judge(fake.detach()), torch.zeros(8, 1))
        judge_opt.zero_grad()
        judged.backward()
        judge_opt.step()
        fooled = criterion(judge(fake), torch.ones(8, 1))
        generator_opt.zero_grad()
        fooled.backward()
        generator_opt.step()
        return judged.detach(), fooled.detach()

    return [step(tensor(8, 2, seed=n), tensor(8, 3, seed=n + 50)) for n in range(5)]


@program("002:4487-4509, 000:382")
def half_precision(run):
    model = settle(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5)))
    x = tensor(2, 3, 6, 6)
    full = model(x).detach()
    model.half()
    model.eval()
    res = run(lambda x: model(x).detach(), x.half())
    assert res.dtype == torch.float16 and torch.allclose(res.float(), full, atol=5e-3)
    model.double()
    return run(lambda x: model(x).detach(), x.double()), [str(p.dtype) for p in model.parameters()]


@program("002:4454-4458")
def inplace_and_assertions(run):
    def check(x):
        y = nn.ReLU(inplace=True)(x * 1)
        assert y.size() == (2, 3, 4, 4)
        return F.relu(y, inplace=True)

    return run(check, tensor(2, 3, 4, 4))
