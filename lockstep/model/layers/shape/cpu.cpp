#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/model/layers/shape/strided_copy.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// A call of memmove costs more than a short run, such as a row of an embedding.
template <typename T>
void copy_run(const T* from, std::int64_t count, T* to) {
  constexpr std::int64_t kLongRun = 128;
  constexpr std::int64_t kChunk = 8;
  if (count >= kLongRun) {
    std::copy_n(from, count, to);
    return;
  }
  for (; count >= kChunk; count -= kChunk, from += kChunk, to += kChunk)
    std::memcpy(to, from, kChunk * sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// Copies the elements from axis `axis` on; `from` and `to` are the addresses of the first.
template <typename T>
void copy_axes(const StridedCopy& copy, int axis, const T* from, T* to) {
  const std::int64_t source = copy.source.strides[axis];
  const std::int64_t target = copy.target.strides[axis];
  const std::int64_t extent = copy.extents[axis];
  if (axis + 1 < copy.axes) {
    for (std::int64_t i = 0; i < extent; ++i)
      copy_axes(copy, axis + 1, from + i * source, to + i * target);
  } else if (source == 1 && target == 1) {
    copy_run(from, extent, to);
  } else {
    for (std::int64_t i = 0; i < extent; ++i) to[i * target] = from[i * source];
  }
}

void run(const StridedCopy& copy, const TensorView& from, const TensorView& to) {
  const auto copy_of = [&]<typename T>(T) {
    copy_axes(copy, 0, static_cast<const T*>(from.data()) + copy.source.offset,
              static_cast<T*>(to.data()) + copy.target.offset);
  };
  if (element_bytes(to.type()) == sizeof(float))
    copy_of(float{});
  else
    copy_of(std::uint16_t{});
}

class CopyOperation final : public Operation {
 public:
  explicit CopyOperation(std::vector<StridedCopy> copies) : copies_(std::move(copies)) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    clear_gaps(copies_, t.output);
    for (std::size_t k = 0; k < copies_.size(); ++k) run(copies_[k], t.inputs[k], t.output);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    for (std::size_t k = 0; k < copies_.size(); ++k) {
      if (t.input_gradients[k].empty()) continue;
      clear_gaps({&copies_[k], 1}, t.input_gradients[k]);
      run(copies_[k].reversed(), t.output_gradient, t.input_gradients[k]);
    }
  }

 private:
  static void clear_gaps(std::span<const StridedCopy> copies, const TensorView& target) {
    if (leaves_gaps(copies, target)) std::memset(target.data(), 0, target.size_bytes());
  }

  std::vector<StridedCopy> copies_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> CopyLayer::compile_cpu(const CompileContext& context,
                                                  cpu::Context& /*cpu*/) const {
  return std::make_unique<cpu::CopyOperation>(copies(context));
}

}  // namespace lockstep::inline v0::model
