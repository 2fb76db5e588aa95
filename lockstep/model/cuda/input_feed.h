// Batches on their way into the passes of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/batch_view.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// Brings batches from host memory to where passes read them, in two strides. The first, on a stream of its own, is the
/// long one over the bus: from page-locked memory to one of two places on the GPU, so that it goes on beside the pass
/// that uses the batch before. The second, on the context's stream, takes it from there: features in the plan's type,
/// targets at addresses that stay the same from batch to batch, for work that is recorded.
class InputFeed {
 public:
  explicit InputFeed(Context& context);
  ~InputFeed();  ///< waits for what is on its way
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  /// The first stride of a batch, for the next load() with `staged`; does not wait for the context's stream.
  void stage(const BatchView& batch);
  /// The second; of `batch`, for which the first is made up for, unless `staged`. `input` has its size.
  void load(const TensorView& input, const BatchView& batch, bool staged);

  // Of the batch loaded last, on the GPU.
  const std::int32_t* labels() const { return targets_.as<std::int32_t>().data(); }
  const float* values() const { return targets_.as<float>().data(); }
  /// Null where its samples are not mixed.
  const std::int32_t* partner_labels() const { return mixed_samples_ > 0 ? labels() + mixed_samples_ : nullptr; }
  const float* weights() const { return mixed_samples_ > 0 ? values() + 2 * mixed_samples_ : nullptr; }
  /// Grows when they move.
  std::uint64_t placement() const { return placement_; }

 private:
  /// One batch: features or pixels, and behind them labels, with those of partners and weights where samples are mixed,
  /// or target values.
  struct Slot {
    device::Buffer pinned;
    device::Buffer on_gpu;
    std::optional<device::Event> arrived;
    std::optional<device::Event> taken;  // by the second stride
  };

  void bring(const BatchView& batch, Slot& slot);
  void reserve(std::size_t bytes, Slot& slot);
  void reserve_targets(std::size_t bytes);

  Context& context_;
  std::unique_ptr<device::Allocator> pinned_allocator_;
  Slot slots_[2];
  std::size_t next_ = 0;
  std::optional<std::size_t> staged_;
  device::Buffer targets_;
  std::size_t mixed_samples_ = 0;  // of the batch loaded last, where its samples are mixed
  std::uint64_t placement_ = 0;
};

}  // namespace lockstep::model::cuda
