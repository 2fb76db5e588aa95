// Factories of the GPU operations, one per layer kind, called by cuda_backend.cpp. Their spans are in GPU memory.
#pragma once

#include <memory>

#include "lockstep/model/backend.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"

namespace lockstep::model::cuda {

std::unique_ptr<Operation> make_conv_2d(Context& context, const Conv2DSpec& spec);
std::unique_ptr<Operation> make_dense(Context& context, const DenseSpec& spec);
std::unique_ptr<Operation> make_pool_2d(Context& context, const Pool2DSpec& spec);
std::unique_ptr<Operation> make_batch_normalization(Context& context, const BatchNormalizationSpec& spec);
std::unique_ptr<Operation> make_relu(Context& context);
std::unique_ptr<Operation> make_softmax(Context& context, std::int64_t width);
/// `key`, in GPU memory, seeds the mask of each pass.
std::unique_ptr<Operation> make_dropout(Context& context, const DropoutSpec& spec, const DropoutKey* key);
std::unique_ptr<Operation> make_add(Context& context, bool relu);

}  // namespace lockstep::model::cuda
