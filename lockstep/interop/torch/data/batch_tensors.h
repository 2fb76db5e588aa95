// Batches of a Dataset as tensors, for custom training loops.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample_spec.h"
#include "lockstep/interop/torch/named_tensors.h"

namespace lockstep::inline v0::torch {

/// The inputs of a batch, by name, without a copy: tensors [samples, shape...] on the CPU that view
/// the memory of `batch`. They are valid until it is destroyed or filled again, as
/// BatchStream::next() does. Types are those of the arrays: uint8, int32, int64 or float32; texts
/// are omitted. Images are [samples, H, W, C]. The unknown extent of a ragged tensor is that of its
/// longest sample; TensorArray::lengths has those of all samples. `spec` is that of the data set.
///
///     const auto stream = dataset.stream({});
///     for (std::vector<data::Batch> parts; stream->next(parts);) {
///       const at::Tensor images = inputs_of(parts[0], dataset.spec()).at("features");
///       const at::Tensor labels = targets_of(parts[0], dataset.spec()).at("label");
///       loss_of(net(images), labels.to(::torch::kLong)).backward();
///     }
///
/// Throws Error (input) if the spec does not match the batch.
NamedTensors inputs_of(data::Batch& batch, const data::SampleSpec& spec);
/// The targets, as above. Class numbers are int32 [samples].
NamedTensors targets_of(data::Batch& batch, const data::SampleSpec& spec);
/// The weights of the samples, as above: float32 [samples]; undefined if the data set has none.
at::Tensor weights_of(data::Batch& batch);

/// The inputs as tensors that outlive the iteration: each keeps `batch` alive. Move a part that a
/// stream has filled into it: std::make_shared<data::Batch>(std::move(parts[0])).
NamedTensors inputs_of(const std::shared_ptr<data::Batch>& batch, const data::SampleSpec& spec);
/// Targets that keep `batch` alive.
NamedTensors targets_of(const std::shared_ptr<data::Batch>& batch, const data::SampleSpec& spec);
/// Weights that keep `batch` alive.
at::Tensor weights_of(const std::shared_ptr<data::Batch>& batch);

}  // namespace lockstep::inline v0::torch
