# Simulates a LibTorch wheel that was built with the old ABI of libstdc++.
set(Torch_FOUND TRUE)
set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")
