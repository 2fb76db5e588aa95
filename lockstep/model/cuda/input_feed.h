// Transfer of batches to a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/batch_view.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// Transfers batches from host memory to the buffers that passes read, in two stages. The first
/// stage is the long copy over the bus, on a separate stream: from page-locked memory to one of two
/// slots on the GPU, overlapped with the pass on the previous batch. The second stage, on the
/// context's stream, copies from the slot: features in the plan's type, targets to addresses that
/// stay the same for all batches, as recorded work requires.
class InputFeed {
 public:
  explicit InputFeed(Context& context);
  ~InputFeed();  ///< waits for transfers in flight
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  /// Stage one of a batch, for the next load() with `staged`. Does not wait for the context's
  /// stream.
  void stage(const BatchView& batch);
  /// Stage two of `batch`; also stage one unless `staged`. `inputs` have the sizes of its inputs,
  /// or images with least_channels() of their type, the additional ones zero.
  void load(std::span<const LoadedInput> inputs, const BatchView& batch, bool staged);

  // Targets of the batch loaded last, on the GPU.
  /// Null if it has values instead.
  const std::int32_t* labels() const {
    return has_labels_ ? targets_.as<std::int32_t>().data() : nullptr;
  }
  const float* values() const { return targets_.as<float>().data(); }
  /// Null without mixup.
  const std::int32_t* partner_labels() const {
    return mixed_samples_ > 0 ? targets_.as<std::int32_t>().data() + mixed_samples_ : nullptr;
  }
  const float* weights() const {
    return mixed_samples_ > 0 ? values() + 2 * mixed_samples_ : nullptr;
  }
  /// Null if all samples have weight 1.
  const float* sample_weights() const { return weights_at_ ? values() + *weights_at_ : nullptr; }
  /// Increases when these arrays have moved.
  std::uint64_t placement() const { return placement_; }

 private:
  /// One batch: its inputs, each features, pixels or indices, followed by labels, with mixup also
  /// partner labels and weights, or by target values; then by the weights of the samples.
  struct Slot {
    device::Buffer pinned;
    device::Buffer on_gpu;
    std::optional<device::Event> arrived;
    std::optional<device::Event> taken;  // by stage two
  };

  void convert_features(const InputView& input, const std::byte* data, const TensorView& target);
  void bring(const BatchView& batch, Slot& slot);
  void reserve(std::size_t bytes, Slot& slot);
  void reserve_targets(std::size_t bytes);

  Context& context_;
  std::unique_ptr<device::Allocator> pinned_allocator_;
  Slot slots_[2];
  std::size_t next_ = 0;
  std::optional<std::size_t> staged_;
  device::Buffer targets_;
  // Of the batch loaded last:
  bool has_labels_ = false;
  std::size_t mixed_samples_ = 0;          // 0 without mixup
  std::optional<std::size_t> weights_at_;  // offset of the samples' weights, in floats
  std::uint64_t placement_ = 0;
};

}  // namespace lockstep::model::cuda
