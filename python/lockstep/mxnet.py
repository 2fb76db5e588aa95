"""Not here: says what to use."""
raise ImportError("[lockstep.mxnet] expected PyTorch (lockstep.torch), or Keras 3 on it "
                  "(lockstep.keras), got MXNet, which is not here")
