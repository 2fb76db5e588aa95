"""A tiny BERT with the names of Hugging Face, and what PyTorch computes with it; make_reference.py
writes both.

The blocks are those of nn.TransformerEncoderLayer, an implementation of its own.
"""
import torch
from torch import nn

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS, TYPES = 2, 8, 2, 11, 512, 2
TOKENS = torch.tensor([[1, 4, 7, 2, 0, 0], [1, 3, 9, 10, 5,
                                            2]])  # as in tests/strategy/pretrained_pytorch_test.cpp
SEGMENTS = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])


def weights():
    """As a file of Hugging Face has them: also what the embedding of a sentence does not read."""
    shapes = {
        "embeddings.word_embeddings.weight": (VOCABULARY, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (TYPES, WIDTH),
        "embeddings.LayerNorm": (WIDTH, ),
        "pooler.dense": (WIDTH, WIDTH)
    }
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            shapes[f"{layer}attention.self.{part}"] = (WIDTH, WIDTH)
        shapes |= {
            layer + "attention.output.dense": (WIDTH, WIDTH),
            layer + "attention.output.LayerNorm": (WIDTH, ),
            layer + "intermediate.dense": (4 * WIDTH, WIDTH),
            layer + "output.dense": (WIDTH, 4 * WIDTH),
            layer + "output.LayerNorm": (WIDTH, )
        }
    state = {"embeddings.position_ids": torch.arange(POSITIONS)[None]}
    for name, shape in shapes.items():
        scale = 1.0 if "embeddings" in name else 0.5
        if name.endswith(".weight"):
            state[name] = scale * torch.randn(shape)
            continue
        state[name + ".weight"] = scale * torch.randn(shape) + (1 if "LayerNorm" in name else 0)
        state[name + ".bias"] = scale * torch.randn(shape[:1])
    return state


def embeddings(state, tokens, segments, heads):
    """The mean of all positions that are not padding, after all blocks: [samples, width], in
    float64."""
    state = {name: tensor.double() for name, tensor in state.items() if tensor.is_floating_point()}
    width = state["embeddings.LayerNorm.weight"].shape[0]

    def normalize(x, name):
        return nn.functional.layer_norm(x, (width, ), state[name + ".weight"],
                                        state[name + ".bias"], 1e-12)

    x = state["embeddings.word_embeddings.weight"][tokens] + state[
        "embeddings.token_type_embeddings.weight"][0]
    x = normalize(x + state["embeddings.position_embeddings.weight"][:tokens.shape[1]],
                  "embeddings.LayerNorm")
    layers = sum(name.endswith("attention.self.query.bias") for name in state)
    for i in range(layers):
        layer = f"encoder.layer.{i}."
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, activation="gelu",
                                           layer_norm_eps=1e-12, batch_first=True).double()
        own = {
            "self_attn.out_proj": "attention.output.dense",
            "linear1": "intermediate.dense",
            "linear2": "output.dense",
            "norm1": "attention.output.LayerNorm",
            "norm2": "output.LayerNorm"
        }
        arrays = {
            f"{ours}.{kind}": state[f"{layer}{theirs}.{kind}"]
            for ours, theirs in own.items()
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            arrays[f"self_attn.in_proj_{kind}"] = torch.cat([
                state[f"{layer}attention.self.{part}.{kind}"] for part in ("query", "key", "value")
            ])
        block.load_state_dict(arrays)
        x = block(x, src_key_padding_mask=segments == 0)
    mask = (segments != 0)[..., None]
    return (x * mask).sum(1) / mask.sum(1)


def values():
    torch.manual_seed(7)
    state = weights()
    return state, {"embeddings": embeddings(state, TOKENS, SEGMENTS, HEADS)}
