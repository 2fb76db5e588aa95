"""Not here: says what to use."""
raise ImportError("[lockstep.ray] expected a launcher of ranks, got Ray, which is not here: in Ray "
                  "Train use the backend of torch.distributed (import lockstep.torch), else start "
                  "the training with lockstep launch, mpirun, srun or torchrun")
