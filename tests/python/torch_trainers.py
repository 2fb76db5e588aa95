"""A rank of torchrun or a launcher of theirs: LIBRARY trains over BACKEND, and prints a hash."""
import hashlib
import sys

import torch

library, backend = sys.argv[1:3]
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(64, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.sum(1, True)), 4)


def with_accelerate(model):
    from accelerate import Accelerator
    torch.distributed.init_process_group(backend)  # accelerate itself knows gloo alone for CPUs
    accelerator = Accelerator(cpu=True)
    wrapped, optimizer, batches = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.01), data)
    for given, wanted in batches:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(wrapped(given), wanted))
        optimizer.step()
    losses = accelerator.gather_for_metrics(torch.ones(2))
    assert losses.numel() == 2 * accelerator.num_processes


def with_lightning(model):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _index):
            loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    lightning.Trainer(
        accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        strategy=lightning.pytorch.strategies.DDPStrategy(process_group_backend=backend)
    ).fit(Module(), data)


model = torch.nn.Linear(8, 1)
globals()[f"with_{library}"](model)
parameters = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
print(library, torch.distributed.get_rank(), torch.distributed.get_backend(),
      hashlib.sha256(parameters.numpy().tobytes()).hexdigest()[:16], flush=True)
