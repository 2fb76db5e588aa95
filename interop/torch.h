// LibTorch with data parallelism across processes: its own modules, optimizers and loaders, each rank on its part.
// Link lockstep::torch. docs/libtorch.md is the guide.
#pragma once

#include "interop/torch/data_loader.h"
#include "interop/torch/distributed_data_parallel.h"
#include "interop/torch/distributed_optimizer.h"
#include "interop/torch/distributed_sampler.h"
#include "interop/torch/exchange.h"
#include "interop/torch/save.h"

namespace lockstep {

using strategy::Session;

}  // namespace lockstep
