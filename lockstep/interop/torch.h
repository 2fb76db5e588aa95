// Data parallelism across processes for LibTorch modules, optimizers and data loaders.
// Link lockstep::torch. See docs/libtorch.md.
#pragma once

#include "lockstep/interop/torch/data/batch_tensors.h"
#include "lockstep/interop/torch/data/data_loader.h"
#include "lockstep/interop/torch/data/distributed_sampler.h"
#include "lockstep/interop/torch/distributed_data_parallel.h"
#include "lockstep/interop/torch/distributed_optimizer.h"
#include "lockstep/interop/torch/exchange.h"
#include "lockstep/interop/torch/module/function_loss.h"
#include "lockstep/interop/torch/module/module_layer.h"
#include "lockstep/interop/torch/save.h"
#include "lockstep/job/run.h"

namespace lockstep::inline v0 {

using job::run;
using job::Session;
using job::SessionOptions;

}  // namespace lockstep::inline v0
