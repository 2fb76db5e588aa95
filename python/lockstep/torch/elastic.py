"""Not here: says what to use."""
raise ImportError("[lockstep.torch] expected a job whose ranks stay the same, got elastic, which "
                  "is not here: save a checkpoint, and restart with torchrun --max-restarts")
