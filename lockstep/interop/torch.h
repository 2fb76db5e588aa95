// LibTorch with data parallelism across processes: its own modules, optimizers and loaders, each rank on its part.
// Link lockstep::torch. docs/libtorch.md is the guide.
#pragma once

#include "lockstep/interop/torch/data_loader.h"
#include "lockstep/interop/torch/distributed_data_parallel.h"
#include "lockstep/interop/torch/distributed_optimizer.h"
#include "lockstep/interop/torch/distributed_sampler.h"
#include "lockstep/interop/torch/exchange.h"
#include "lockstep/interop/torch/save.h"

namespace lockstep {

using job::Session;

}  // namespace lockstep
