// Factories of the CPU operations, one per layer kind, called by cpu_backend.cpp.
#pragma once

#include <memory>

#include "lockstep/model/backend.h"
#include "lockstep/model/cpu/onednn.h"

namespace lockstep::model::cpu {

std::unique_ptr<Operation> make_conv_2d(OneDnn& dnn, const Conv2DSpec& spec);
std::unique_ptr<Operation> make_dense(OneDnn& dnn, const DenseSpec& spec);
std::unique_ptr<Operation> make_pool_2d(OneDnn& dnn, const Pool2DSpec& spec);
std::unique_ptr<Operation> make_batch_normalization(OneDnn& dnn, const BatchNormalizationSpec& spec);
/// For training, with the statistics of all members of `exchange`, which must outlive the operation.
std::unique_ptr<Operation> make_synchronized_batch_normalization(const BatchNormalizationSpec& spec,
                                                                 StatisticsExchange& exchange);
std::unique_ptr<Operation> make_relu(OneDnn& dnn, std::int64_t elements, bool training);
std::unique_ptr<Operation> make_softmax(OneDnn& dnn, std::int64_t rows, std::int64_t width, bool training);
std::unique_ptr<Operation> make_dropout(const OneDnn& dnn, const DropoutSpec& spec);
std::unique_ptr<Operation> make_add(const OneDnn& dnn, bool relu);

}  // namespace lockstep::model::cpu
