#include "lockstep/model/cuda/input_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elementwise.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const InputView& input) {
  if (!input.indices.empty()) return std::as_bytes(input.indices);
  return input.pixels.empty() ? std::as_bytes(input.features) : std::as_bytes(input.pixels);
}

/// The arrays that follow the inputs, one after another.
std::array<Bytes, 4> pieces_of(const Targets& targets) {
  const Bytes weights = std::as_bytes(targets.sample_weights);
  if (targets.labels.empty()) return {std::as_bytes(targets.values), {}, {}, weights};
  return {std::as_bytes(targets.labels), std::as_bytes(targets.partner_labels),
          std::as_bytes(targets.weights), weights};
}

std::size_t bytes_of(const Targets& targets) {
  std::size_t bytes = 0;
  for (const Bytes& piece : pieces_of(targets)) bytes += piece.size();
  return bytes;
}

std::size_t target_bytes_of(const BatchView& batch) {
  std::size_t bytes = bytes_of(batch.targets);
  for (const Targets& targets : batch.more_targets) bytes += bytes_of(targets);
  return bytes;
}

/// The offset of the data after an input of `bytes` bytes.
std::size_t next_offset(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The offset of the targets after the inputs.
std::size_t targets_at(const BatchView& batch) {
  std::size_t offset = 0;
  for (std::size_t k = 0; k < batch.input_count(); ++k)
    offset += next_offset(bytes_of(batch.input(k)).size());
  return offset;
}

std::size_t bytes_of(const BatchView& batch) { return targets_at(batch) + target_bytes_of(batch); }

/// Makes `event` the current end of `stream`.
void record(device::Stream& stream, std::optional<device::Event>& event) {
  if (event)
    stream.record(*event);
  else
    event = stream.record();
}

void copy_bytes(const Bytes& from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

InputFeed::InputFeed(Context& context)
    : context_(context), pinned_allocator_(device::make_pinned_allocator()) {}

InputFeed::~InputFeed() {
  try {
    context_.copies().synchronize();
  } catch (const Error&) {  // the device has failed; the error was already reported
  }
}

void InputFeed::stage(const BatchView& batch) {
  staged_.reset();  // a batch that was not loaded
  const std::size_t slot = std::exchange(next_, 1 - next_);
  copy_to_gpu(batch, slots_[slot]);
  staged_ = slot;
}

void InputFeed::load(std::span<const LoadedInput> inputs, const BatchView& batch, bool staged) {
  std::size_t which = 0;
  if (staged) {
    LOCKSTEP_CHECK(staged_.has_value());
    which = *std::exchange(staged_, std::nullopt);
  } else {
    which = staged_ ? 1 - *staged_ : std::exchange(next_, 1 - next_);
    copy_to_gpu(batch, slots_[which]);
    // Also reserves memory for the next batch: a GPU allocation may wait for all work in progress
    // on the GPU, and the work of a step may wait for other ranks.
    if (!staged_) reserve(bytes_of(batch), slots_[1 - which]);
  }
  Slot& slot = slots_[which];
  context_.stream().wait(*slot.arrived);
  const auto* data = static_cast<const std::byte*>(slot.on_gpu.data());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const InputView input = batch.input(k);
    if (input.indices.empty())
      convert_features(input, data, inputs[k].features);
    else
      device::copy(inputs[k].indices.data(), data, input.indices.size_bytes(), context_.stream());
    data += next_offset(bytes_of(input).size());
  }
  const std::size_t bytes = target_bytes_of(batch);
  reserve_targets(bytes);
  if (bytes > 0) device::copy(targets_.data(), data, bytes, context_.stream());
  terms_.clear();
  std::size_t begin = 0;
  for (std::size_t term = 0; term <= batch.more_targets.size(); ++term) {
    const Targets& targets = batch.targets_of(term);
    const std::size_t count = bytes_of(targets) / sizeof(float);
    terms_.push_back({.begin = begin,
                      .has_labels = !targets.labels.empty(),
                      .labels = std::ssize(targets.labels),
                      .mixed_samples = targets.partner_labels.size(),
                      .sample_weights = std::ssize(targets.sample_weights),
                      .weights_at = {}});
    if (!targets.sample_weights.empty())
      terms_.back().weights_at = count - targets.sample_weights.size();
    begin += count;
  }
  record(context_.stream(), slot.consumed);
}

void InputFeed::convert_features(const InputView& input, const std::byte* data,
                                 const TensorView& target) {
  const bool has_features = input.pixels.empty();
  const std::size_t count = has_features ? input.features.size() : input.pixels.size();
  const auto features =
      TensorView::reading({reinterpret_cast<const float*>(data), has_features ? count : 0});
  const auto* const pixels = reinterpret_cast<const std::uint8_t*>(data);
  if (count != target.size()) {
    const std::int64_t padded = min_channels(target.type());
    const auto channels = static_cast<std::int64_t>(count) * padded /
                          static_cast<std::int64_t>(std::max<std::size_t>(target.size(), 1));
    LOCKSTEP_CHECK_OP(channels, >, 0);
    LOCKSTEP_CHECK_OP(count * static_cast<std::size_t>(padded), ==,
                      target.size() * static_cast<std::size_t>(channels));
    if (has_features)
      convert_channels(features, channels, target, padded, context_.native());
    else
      convert_pixels_padded(pixels, channels, input.normalization, target, context_.native());
  } else if (has_features) {
    convert(features, target, context_.native());
  } else {
    convert_pixels(pixels, input.normalization, target, context_.native());
  }
}

void InputFeed::copy_to_gpu(const BatchView& batch, Slot& slot) {
  const std::size_t end = bytes_of(batch);
  if (slot.arrived) slot.arrived->synchronize();
  reserve(end, slot);
  auto* const pinned = static_cast<std::byte*>(slot.pinned.data());
  std::byte* next = pinned;
  for (std::size_t k = 0; k < batch.input_count(); ++k) {
    const Bytes input = bytes_of(batch.input(k));
    copy_bytes(input, next);
    next += next_offset(input.size());
  }
  for (std::size_t term = 0; term <= batch.more_targets.size(); ++term)
    for (const Bytes& piece : pieces_of(batch.targets_of(term))) {
      copy_bytes(piece, next);
      next += piece.size();
    }
  if (slot.consumed) context_.copies().wait(*slot.consumed);
  device::copy(slot.on_gpu.data(), pinned, end, context_.copies());
  record(context_.copies(), slot.arrived);
}

void InputFeed::reserve(std::size_t bytes, Slot& slot) {
  if (bytes <= slot.pinned.size()) return;
  if (slot.consumed) slot.consumed->synchronize();
  slot.on_gpu = {};  // free first: both together might not fit
  slot.pinned = {};
  slot.on_gpu = context_.allocator().allocate(bytes);
  slot.pinned = pinned_allocator_->allocate(bytes);
}

void InputFeed::reserve_targets(std::size_t bytes) {
  if (bytes <= targets_.size()) return;
  context_.stream().synchronize();
  targets_ = {};
  targets_ = context_.allocator().allocate(bytes);
  ++placement_;
}

}  // namespace lockstep::inline v0::model::cuda
