"""Not here: says what to use."""
raise ImportError("[lockstep.spark] expected a launcher of ranks, got Spark, which is not here: "
                  "write the data to files, and start the training with lockstep launch, mpirun, "
                  "srun or torchrun")
