"""PyTorch's losses of trainings of networks of sequences, and single layers of them;
make_reference.py writes them.

Initial parameters, tokens and labels of the trainings are hashes, which
tests/model/sequence_reference_test.cpp computes too.
"""
import torch
from torch import nn
from torch.nn import functional

from make_reference_mobilenet import hashed, initial

SAMPLES, POSITIONS, VOCABULARY, CLASSES = 4, 16, 24, 5  # SAMPLES of a batch
STEPS, BATCHES = 20, 3
WIDTH, HEADS, BLOCKS, UNITS = 32, 2, 2, 16
SEED, TOKENS_SEED, LABELS_SEED = 21, 500, 600
# pairs of texts; SOURCES positions
SOURCES, TARGET_VOCABULARY, SOURCE_SEED, SOURCE_LENGTHS_SEED = 10, VOCABULARY + 2, 700, 800


def attend(queries, keys, values, heads, shared=None, causal=False, segments=None, rotary=None):
    """[N, T, elements of all heads] to the same; `shared` heads of keys and values."""
    def split(rows, count):
        return rows.unflatten(-1, (count, -1)).transpose(1, 2)

    q, k, v = split(queries, heads), split(keys, shared or heads), split(values, shared or heads)
    if rotary:
        q, k = rotated(q, rotary), rotated(k, rotary)
    seen = None
    if segments is not None:
        seen = ((segments[:, :, None] == segments[:, None]) & (segments[:, :, None] != 0))[:, None]
        seen, causal = (seen.tril() if causal else seen), False
    rows = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal,
                                                   enable_gqa=bool(shared))
    if segments is not None:
        rows = rows.where(segments[:, None, :, None] != 0, 0)  # padding has no keys
    return rows.transpose(1, 2).flatten(2)


def rotated(x, base):
    """Rotary positions as in Llama: pairs of elements i and i + half."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2]).double()[:,
                                                None] * base**(-torch.arange(half).double() / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([
        first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()
    ], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({
            "c_attn": nn.Linear(WIDTH, 3 * WIDTH),
            "c_proj": nn.Linear(WIDTH, WIDTH)
        })
        self.mlp = nn.ModuleDict({
            "c_fc": nn.Linear(WIDTH, 4 * WIDTH),
            "c_proj": nn.Linear(4 * WIDTH, WIDTH)
        })

    def forward(self, x):
        x = x + self.attn.c_proj(
            attend(*self.attn.c_attn(self.ln_1(x)).chunk(3, -1), HEADS, causal=True))
        return x + self.mlp.c_proj(functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2: logits of the token after each position."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


class Classifier(nn.Module):
    """Recurrent layers on an embedding, and a dense layer of the last output of the last of
    them."""

    def __init__(self, *layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        for name, layer in layers:
            self.add_module(name, layer)
        self.dense = nn.Linear(UNITS, CLASSES)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in list(self.children())[1:-1]:
            x, _ = layer(x)
        return self.dense(x[:, -1])


class Seq2Seq(nn.Module):
    """`seq2seq` of LAYERS layers: an encoder of padded sources, and a decoder that attends to its
    outputs."""

    LAYERS = 2

    def __init__(self):
        super().__init__()
        def layers():
            return nn.ModuleList(recurrent(nn.LSTM, UNITS if i else 8) for i in range(self.LAYERS))

        self.encoder = nn.ModuleDict({"embedding": nn.Embedding(VOCABULARY, 8), "lstm": layers()})
        self.decoder = nn.ModuleDict({
            "embedding": nn.Embedding(TARGET_VOCABULARY, 8),
            "lstm": layers(),
            "initial": nn.ModuleList(nn.Linear(UNITS, 2 * UNITS) for _ in range(self.LAYERS)),
            "combine": nn.Linear(2 * UNITS, UNITS, bias=False),
            "output": nn.Linear(UNITS, TARGET_VOCABULARY)
        })
        self.attention = nn.ModuleDict({
            "query": nn.Linear(UNITS, UNITS, bias=False),
            "key": nn.Linear(UNITS, UNITS),
            "weights": Additive(UNITS)
        })

    def forward(self, inputs):
        source, segments, tokens = inputs
        present = (segments != 0)[..., None]
        encoded = self.encoder.embedding(source)
        for layer in self.encoder.lstm:
            encoded = layer(encoded)[0] * present
        mean = encoded.sum(1) / present.sum(1)
        decoded = self.decoder.embedding(tokens)
        for layer, initial_state in zip(self.decoder.lstm, self.decoder.initial):
            state = initial_state(mean).tanh()[None].chunk(2, -1)
            decoded, _ = layer(decoded, tuple(part.contiguous() for part in state))
        query, key = self.attention.query(decoded), self.attention.key(encoded)
        scores = (query[:, :, None] + key[:, None]).tanh() @ self.attention.weights.scale
        context = scores.masked_fill(~present.mT, -torch.inf).softmax(-1) @ encoded
        return self.decoder.output(self.decoder.combine(torch.cat([context, decoded], -1)).tanh())


def recurrent(module, inputs, **options):
    return without_second_bias(module(inputs, UNITS, batch_first=True, **options))


def without_second_bias(module):
    """Of the two biases of LSTM and RNN, which are added, one is ours."""
    if not isinstance(module, nn.GRU):
        for name, parameter in module.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter).requires_grad_(False)
    return module


def our_name(module, name):
    """The name in Lockstep of the parameter `name` of `module`; the last part of it."""
    if not isinstance(module, nn.RNNBase):
        names = {
            nn.LayerNorm: {
                "weight": "gamma",
                "bias": "beta"
            },
            nn.RMSNorm: {
                "weight": "gamma"
            },
            nn.Embedding: {
                "weight": "embeddings"
            },
            Learned: {
                "weight": "embeddings"
            },
            Additive: {
                "scale": "scale"
            }
        }
        return names.get(type(module), {"weight": "kernel", "bias": "bias"})[name]
    kind = name.split("_l0")[0]
    names = {
        "weight_ih": "kernel",
        "weight_hh": "recurrent_kernel",
        "bias_ih": "bias",
        "bias_hh": "recurrent_bias"
    }
    return ("backward_" if name.endswith("_reverse") else "") + names[kind]


def trained_arrays(model):
    return {
        f"{layer}/{our_name(module, name)}": parameter
        for layer, module in model.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    }


def numbers_below(limit, shape, seed):
    return ((hashed(shape, seed) + 1) / 2 * limit).long()


def trainings():
    """Makers of a network, whether it has an output at each position, and of its optimizer, by
    name."""
    def adamw(arrays):
        groups = [{"params": [p for p in arrays if p.dim() > 1], "weight_decay": 0.01},
                  {"params": [p for p in arrays if p.dim() == 1], "weight_decay": 0}]
        return torch.optim.AdamW(groups, lr=3e-3, eps=1e-7)

    def sgd(arrays):
        return torch.optim.SGD(arrays, lr=0.1, momentum=0.9)

    def adam(arrays):
        return torch.optim.Adam(arrays, lr=1e-2, eps=1e-7)

    return {
        "gpt": (Gpt, True, adamw),
        "lstm": (lambda: Classifier(("lstm", recurrent(nn.LSTM, 8)),
                                    ("lstm_1", recurrent(nn.LSTM, UNITS))), False, sgd),
        "gru": (lambda: Classifier(("gru", recurrent(nn.GRU, 8, bidirectional=True)),
                                   ("gru_1", recurrent(nn.GRU, 2 * UNITS))), False, adam),
        "seq2seq": (Seq2Seq, True, sgd)
    }


def losses(make, at_positions, make_optimizer, kind=torch.float64):
    """Losses of STEPS updates, batches in turn. The mean is over the positions whose label is not
    -1."""
    model = make().to(kind)
    arrays = trained_arrays(model)
    with torch.no_grad():
        for number, name in enumerate(sorted(arrays)):
            arrays[name].copy_(initial(name, arrays[name], SEED + number))
    optimizer = make_optimizer(list(arrays.values()))
    shape = (BATCHES, SAMPLES, POSITIONS)
    vocabulary = TARGET_VOCABULARY if make is Seq2Seq else VOCABULARY
    tokens = numbers_below(vocabulary, shape, TOKENS_SEED)
    inputs = tokens
    if make is Seq2Seq:
        source = numbers_below(VOCABULARY, (*shape[:2], SOURCES), SOURCE_SEED)
        lengths = numbers_below(SOURCES, shape[:2], SOURCE_LENGTHS_SEED) + 1
        inputs = list(zip(source, (torch.arange(SOURCES) < lengths[..., None]).int(), tokens))
    if at_positions:  # a part is masked
        labels = (numbers_below(vocabulary + 2, shape, LABELS_SEED) - 2).clamp(min=-1)
    else:
        labels = numbers_below(CLASSES, shape[:2], LABELS_SEED)
    result = []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(inputs[step % BATCHES])
        loss = functional.cross_entropy(logits.flatten(0, -2), labels[step % BATCHES].flatten(),
                                        ignore_index=-1)
        loss.backward()
        optimizer.step()
        result.append(loss.detach())
    return torch.stack(result)


def positions(count, width):
    """Sinusoidal ones (Vaswani et al.), sines and cosines in turn."""
    angles = torch.arange(count).double()[:, None] * 10000**(-torch.arange(0, width, 2).double() /
                                                             width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Learned(nn.Embedding):
    def forward(self, x):
        return x + self.weight


class Segments(nn.Module):
    """Attention in a network with segments as inputs, which are also tokens."""

    def __init__(self):
        super().__init__()
        self.embedding, self.positional_embedding = nn.Embedding(4, 24), Learned(9, 24)

    def forward(self, segments):
        rows = self.positional_embedding(self.embedding(segments))
        return attend(*rows.chunk(3, -1), 2, causal=True, segments=segments)


class Additive(nn.Module):
    """Additive attention of all but the last two positions to all; the values are hyperbolic
    tangents."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x):
        scores = (x[:, :-2, None] + x[:, None]).tanh() @ self.scale
        return scores.softmax(-1) @ x.tanh()


def layer_cases():
    """The shape of a sample, and a function of a batch, by name; a module has parameters, of the
    layer of the given name."""
    def packed(heads, shared, width, **options):
        parts = [heads * width, shared * width, shared * width]
        return lambda x: attend(*x.split(parts, -1), heads, shared, **options)

    def last_outputs(kind, **options):
        """Those of the last position, and of a second direction of the first one, where it ends."""
        module = without_second_bias(kind(3, 5, batch_first=True, **options))

        def run(x):
            rows, _ = module(x)
            return torch.cat([rows[:, -1, :5], rows[:, 0, 5:]], -1)

        return (6, 3), module, run

    cases = {"attention_causal": ((6, 24), None, packed(2, 2, 4, causal=True)),
             "attention_grouped": ((5, 32), None, packed(4, 2, 4)),
             "attention_rotary": ((7, 24), None, packed(4, 1, 4, causal=True, rotary=100.0)),
             "attention_cross": ((4, 8), None, lambda x: attend(x, x.mT, x.mT.tanh(), 2, 1)),
             "attention_segments": ((9,), Segments(), None),
             "rms_normalization": ((3, 8), nn.RMSNorm(8, eps=1e-6), None),
             "positional_embedding": ((5, 6), Learned(5, 6), None),
             "sinusoidal_embedding": ((5, 6), None, lambda x: x + positions(5, 6))}
    for name, module in {"lstm": nn.LSTM, "gru": nn.GRU, "simple_rnn": nn.RNN}.items():
        cases |= {
            name: last_outputs(module),
            f"{name}_bidirectional": last_outputs(module, bidirectional=True)
        }
    return cases | {"additive_attention": ((6, 5), Additive(5), None)}


def layer_values(kind, shape, module, function, seed):
    """Output, and gradients of the mean squared error to targets, of a layer of x + offset, or of
    numbers."""
    samples = 2
    leaves = {}
    if module is not None:
        module.double()
        leaves = trained_arrays(module)
        leaves = {
            (kind if name.startswith("/") else "") + name: array
            for name, array in leaves.items()
        }
        with torch.no_grad():
            for number, name in enumerate(sorted(leaves)):
                leaves[name].copy_(hashed(leaves[name].shape, seed + number).float())
    if isinstance(module, Segments):
        x = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0, 0], [0, 3, 3, 3, 3, 3, 1, 1, 2]])
        output = module(x)
    else:
        x = 2 * hashed((samples, *shape), seed + 50).float().double()
        offset = hashed(shape, seed + 60).float().double().requires_grad_()
        leaves["shift/offset"] = offset
        output = (function or module)(x + offset)
    target = hashed(output.shape, seed + 70).float().double()
    gradients = torch.autograd.grad(functional.mse_loss(output, target), list(leaves.values()))
    result = {"input": x, "target": target, "output": output}
    result |= {f"parameter/{name}": array for name, array in leaves.items()}
    return result | {f"gradient/{name}": gradient for name, gradient in zip(leaves, gradients)}


def values():
    result = {}
    for name, training in trainings().items():
        result[f"{name}/losses"] = losses(*training)
    for number, (name, case) in enumerate(layer_cases().items()):
        kind = next((kind for kind in ("lstm", "gru", "simple_rnn") if name.startswith(kind)), name)
        result |= {
            f"layer/{name}/{key}": array
            for key, array in layer_values(kind, *case, 1000 + 100 * number).items()
        }
    return result
