"""A tiny GPT-2 of Hugging Face's library, as it saves one, and its logits; make_reference.py writes
both."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = torch.tensor([[1, 4, 7, 2, 0, 3], [1, 3, 9, 10, 5,
                                            2]])  # as in tests/strategy/pretrained_pytorch_test.cpp


def values():
    torch.manual_seed(8)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=11, n_positions=9, n_embd=8, n_layer=2, n_head=2, bos_token_id=0,
                   eos_token_id=0)).eval()
    for name, parameter in model.named_parameters():
        parameter.data += (0.3 if "ln_" in name or name.endswith(".bias") else
                           0.5) * torch.randn_like(parameter)
    # Like the published files, without the prefix of the model with a head, and with the masks.
    state = {
        name: tensor.detach().clone()
        for name, tensor in model.transformer.state_dict().items()
    }
    for i in range(model.config.n_layer):
        state[f"h.{i}.attn.bias"] = torch.ones(9, 9).tril()[None, None]
        state[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    with torch.no_grad():
        logits = model.double()(TOKENS).logits
    return state, {"logits": logits}
