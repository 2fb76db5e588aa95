// Transfer of batches to a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

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
  /// or images with min_channels() of their type, the additional ones zero.
  void load(std::span<const LoadedInput> inputs, const BatchView& batch, bool staged);

  // Targets of loss term `term` in the batch loaded last, on the GPU.
  /// Null if the term has values instead.
  const std::int32_t* labels(std::size_t term) const {
    return terms_[term].has_labels ? targets_.as<std::int32_t>().data() + terms_[term].begin
                                   : nullptr;
  }
  const float* values(std::size_t term) const {
    return targets_.as<float>().data() + terms_[term].begin;
  }
  /// Null without mixup.
  const std::int32_t* partner_labels(std::size_t term) const {
    const std::size_t mixed = terms_[term].mixed_samples;
    return mixed > 0 ? labels(term) + mixed : nullptr;
  }
  const float* weights(std::size_t term) const {
    const std::size_t mixed = terms_[term].mixed_samples;
    return mixed > 0 ? values(term) + 2 * mixed : nullptr;
  }
  /// Number of labels of each of `samples` samples; 1 if the term has values instead.
  std::int64_t positions(std::size_t term, std::int64_t samples) const {
    return terms_[term].has_labels ? terms_[term].labels / samples : 1;
  }
  /// Number of weights, one per sample or per label.
  std::int64_t sample_weight_count(std::size_t term) const { return terms_[term].sample_weights; }
  /// Null if all samples have weight 1.
  const float* sample_weights(std::size_t term) const {
    return terms_[term].weights_at ? values(term) + *terms_[term].weights_at : nullptr;
  }
  /// Increases when these arrays move.
  std::uint64_t placement() const { return placement_; }

 private:
  /// One batch: its inputs, each features, pixels or indices, followed for each term of the loss by
  /// labels, with mixup also partner labels and weights, or by target values; then by the weights
  /// of the samples.
  struct Slot {
    device::Buffer pinned;
    device::Buffer on_gpu;
    std::optional<device::Event> arrived;
    std::optional<device::Event> consumed;  // after stage two
  };

  /// Location of the targets of one term; offsets in elements of 4 bytes.
  struct Term {
    std::size_t begin = 0;
    bool has_labels = false;
    std::int64_t labels = 0;
    std::size_t mixed_samples = 0;  // 0 without mixup
    std::int64_t sample_weights = 0;
    std::optional<std::size_t> weights_at;  // offset of the sample weights from `begin`
  };

  void convert_features(const InputView& input, const std::byte* data, const TensorView& target);
  void copy_to_gpu(const BatchView& batch, Slot& slot);
  void reserve(std::size_t bytes, Slot& slot);
  void reserve_targets(std::size_t bytes);

  Context& context_;
  std::unique_ptr<device::Allocator> pinned_allocator_;
  Slot slots_[2];
  std::size_t next_ = 0;
  std::optional<std::size_t> staged_;
  device::Buffer targets_;
  std::vector<Term> terms_;  // the loss terms of the batch loaded last
  std::uint64_t placement_ = 0;
};

}  // namespace lockstep::inline v0::model::cuda
