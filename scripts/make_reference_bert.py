"""A tiny BertForSequenceClassification of Hugging Face and its logits; make_reference.py writes
both."""
import torch
import transformers

from make_reference_minilm import SEGMENTS, TOKENS

POSITIONS = 9  # more than the texts have


def values():
    torch.manual_seed(11)
    config = transformers.BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=2,
                                     num_attention_heads=2, intermediate_size=32,
                                     max_position_embeddings=POSITIONS, num_labels=3)
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits = model.double()(TOKENS, attention_mask=(SEGMENTS != 0).long()).logits
    return state, {"logits": logits.detach()}
