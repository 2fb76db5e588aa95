"""Tiny vision transformers of timm and their logits; make_reference.py writes both."""
import timm.models.vision_transformer
import torch


def values():
    torch.manual_seed(13)
    images = torch.randn(2, 8, 12, 3)  # as in tests/strategy/pretrained_pytorch_test.cpp
    states, expected = {}, {"images": images}
    for name, has_class_token in (("vit", False), ("vit_class_token", True)):
        model = timm.models.vision_transformer.VisionTransformer(
            img_size=(8, 12), patch_size=4, embed_dim=8, depth=2, num_heads=2, num_classes=5,
            class_token=has_class_token, global_pool="token" if has_class_token else "avg").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        states[name] = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        logits = model.double()(images.permute(0, 3, 1, 2).double())
        expected[name] = logits.detach()
    return states, expected
