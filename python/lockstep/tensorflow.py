"""Not here: says what to use."""
raise ImportError("[lockstep.tensorflow] expected PyTorch (lockstep.torch), or Keras 3 on it "
                  "(lockstep.keras), got TensorFlow, which is not here")
