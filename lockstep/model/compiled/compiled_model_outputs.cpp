// Inference passes, and the outputs of a model on the host.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/compiled/plan.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model {

Plan& CompiledModel::forward_in_inference(const BatchView& batch) {
  check_inputs(batch);
  Plan& active = plan({.samples = batch.samples});
  backend_->begin_pass({}, {});
  active.load(batch, false);
  active.forward({});
  return active;
}

MetricSums CompiledModel::evaluate_batch(const BatchView& batch, const TotalLoss& loss,
                                         std::vector<std::span<const float>>* outputs) {
  if (outputs != nullptr) outputs->assign(network_->outputs().size(), {});
  if (batch.samples == 0) return {};
  check_all_targets(batch, loss);
  backend_->clear_sums();
  const Plan& active = forward_in_inference(batch);
  for (std::size_t term = 0; term < loss.terms().size(); ++term)
    backend_->compute_loss(loss, term, active.output(loss[term].output), batch.samples, {}, {});
  backend_->fetch_sums();
  backend_->stream().synchronize();
  const MetricSums sums = backend_->read_sums();
  if (outputs != nullptr) *outputs = all_on_host(active);
  return sums;
}

std::span<const float> CompiledModel::predict_batch(const BatchView& batch, std::size_t output) {
  LOCKSTEP_CHECK_OP(output, <, network_->outputs().size());
  if (batch.samples == 0) return {};
  return on_host(forward_in_inference(batch).output(output), output);
}

std::vector<std::span<const float>> CompiledModel::predict_outputs(const BatchView& batch) {
  if (batch.samples == 0) return std::vector<std::span<const float>>(network_->outputs().size());
  return all_on_host(forward_in_inference(batch));
}

std::span<const float> CompiledModel::predict_row(const BatchView& batch, std::int64_t row) {
  LOCKSTEP_CHECK_OP(batch.samples, ==, 1);
  return row_on_host(forward_in_inference(batch), row, network_->output_shape().front());
}

bool CompiledModel::is_incremental() const {
  const std::span<const NetworkInput> inputs = network_->inputs();
  const Shape& sequence = inputs.front().shape;  // [T]
  const auto is_sequence = [&](const NetworkInput& input) {
    return input.type == ElementType::int32 && input.shape == sequence;
  };
  const bool on_host = backend_->runs_on_host();
  const auto is_by_row = [&](const Node& node) {
    const Traits traits = node.layer->traits();
    return traits.incremental && (on_host || traits.incremental_on_gpu) &&
           node.output_shape.size() > 1 && node.output_shape.front() == sequence.front();
  };
  return sequence.size() == 1 && std::ranges::all_of(inputs, is_sequence) &&
         std::ranges::all_of(network_->nodes(), is_by_row);
}

std::span<const float> CompiledModel::predict_row(const BatchView& batch, std::int64_t row,
                                                  const Positions& positions,
                                                  device::Buffer& cache) {
  LOCKSTEP_CHECK(is_incremental());
  LOCKSTEP_CHECK_OP(batch.samples, ==, 1);
  LOCKSTEP_CHECK_OP(positions.first + positions.count, <=, network_->input_shape().front());
  check_inputs(batch, positions.count);
  Plan& active = plan({.samples = 1, .rows = positions.count});
  if (cache.size() == 0)
    cache = backend_->allocator().allocate(std::max<std::size_t>(active.cache_bytes(), 64));
  active.bind_cache(cache.as<std::byte>().data());
  const PassContext pass{.position = positions.first};
  backend_->begin_pass(pass, {});
  active.load(batch, false);
  active.forward(pass);
  return row_on_host(active, row - positions.first, positions.count);
}

std::span<const float> CompiledModel::row_on_host(const Plan& active, std::int64_t row,
                                                  std::int64_t rows) {
  constexpr std::size_t kAligned = 16;  // elements; a GPU reads several at once
  const TensorView all = active.output();
  const std::size_t size = all.size() / static_cast<std::size_t>(rows);
  const std::size_t begin = static_cast<std::size_t>(row) * size;
  const std::size_t before = begin % kAligned;
  auto* const data =
      static_cast<std::byte*>(all.data()) + (begin - before) * element_bytes(all.type());
  return on_host({data, before + size, all.type()}, 0).subspan(before);
}

std::vector<std::span<const float>> CompiledModel::all_on_host(const Plan& active) {
  std::vector<std::span<const float>> outputs;
  for (std::size_t k = 0; k < network_->outputs().size(); ++k)
    outputs.push_back(on_host(active.output(k), k));
  return outputs;
}

std::span<const float> CompiledModel::on_host(const TensorView& values, std::size_t output) {
  if (backend_->runs_on_host() && values.type() == Precision::float32) return values.as<float>();
  std::vector<float>& host = host_outputs_[output];
  host.resize(values.size());
  backend_->read(values, host);
  return host;
}

void CompiledModel::keep_outputs(std::int64_t samples) {
  copied_samples_ = 0;
  kept_samples_ = samples;
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < network_->outputs().size(); ++k)
    bytes += static_cast<std::size_t>(samples * width(k)) * element_bytes(backend_->precision());
  if (bytes <= kept_.size()) return;
  backend_->stream().synchronize();  // work in flight may use the old memory
  kept_ = backend_->runs_on_host() ? device::HostAllocator().allocate(bytes)
                                   : device::make_pinned_allocator()->allocate(bytes);
  ++arenas_;
}

void CompiledModel::keep(const Plan& active, std::int64_t samples) {
  if (copied_samples_ + samples > kept_samples_) return;
  auto* place = kept_.as<std::byte>().data();
  for (std::size_t k = 0; k < network_->outputs().size(); ++k) {
    const TensorView output = active.output(k);
    const std::size_t sample_bytes = output.size_bytes() / static_cast<std::size_t>(samples);
    device::copy(place + static_cast<std::size_t>(copied_samples_) * sample_bytes, output.data(),
                 output.size_bytes(), backend_->stream());
    place += static_cast<std::size_t>(kept_samples_) * sample_bytes;
  }
  copied_samples_ += samples;
}

std::vector<std::span<const float>> CompiledModel::kept_outputs() {
  const Precision type = backend_->precision();
  std::vector<std::span<const float>> outputs;
  auto* place = kept_.as<std::byte>().data();
  for (std::size_t k = 0; k < network_->outputs().size(); ++k) {
    const TensorView kept(place, static_cast<std::size_t>(kept_samples_ * width(k)), type);
    place += kept.size_bytes();
    if (type == Precision::float32) {
      outputs.push_back(kept.as<float>());
      continue;
    }
    std::vector<float>& wide = host_outputs_[k];
    wide.resize(kept.size());
    if (type == Precision::bfloat16)
      widen(kept.as<BFloat16>(), wide);
    else
      widen(kept.as<Float16>(), wide);
    outputs.push_back(wide);
  }
  return outputs;
}

}  // namespace lockstep::inline v0::model
