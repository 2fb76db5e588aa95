// Shared by the CPU operations: the context of a replica, primitives whose arguments change
// address, and reorders of weights.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::model {
class StatisticsExchange;
}

namespace lockstep::inline v0::model::cpu {

using dnnl::memory;

/// State shared by the operations of one CPU replica. Used by one thread.
struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  /// Type of activations and of the weights that products read.
  memory::data_type type = memory::data_type::f32;
  /// For batch normalization; null: the replica's own statistics.
  StatisticsExchange* statistics = nullptr;
};

/// Whether oneDNN uses the instructions of `wanted`.
bool has_instructions(dnnl::cpu_isa wanted);
/// Number of float32 elements of the vectors that oneDNN uses. The width of our own loops (lanes.h)
/// depends on the compiler's options instead.
std::int64_t lanes_of_onednn();

/// Attributes for scratch memory from the plan's arena instead of the library.
dnnl::primitive_attr user_scratchpad();

/// Whether `implementation` of a pass of a convolution, as oneDNN names it, is known to compute
/// wrong results for images [batch, channels, height, width]. Found in oneDNN 2.6, the first in 3.2
/// too:
/// - backward_weights of 1x1 kernels, without AVX-512 or in bfloat16: with strides and less than a
///   vector of channels, it writes past the end of its scratchpad;
/// - backward_weights in bfloat16: if a stride is wider than the images, it reads scratchpad memory
///   that it has not written;
/// - backward_data of 1x1 kernels in bfloat16: wrong for an odd number of filters and some sizes;
/// - bfloat16 without instructions for it: forward and backward_data of 1x1 kernels are wrong for
///   some sizes.
bool is_wrong(dnnl::prop_kind pass, std::string_view implementation, const memory::dims& images,
              const memory::dims& results, const memory::dims& strides);

/// The descriptor of an image array [batch, height, width, channels]: logical NCHW, channels last.
memory::desc image(memory::data_type type, std::int64_t batch, std::int64_t channels,
                   std::int64_t height, std::int64_t width);
memory::desc matrix(memory::data_type type, std::int64_t rows, std::int64_t columns);
memory::desc vector(memory::data_type type, std::int64_t elements);

/// A primitive and its arguments. Memory objects are created once; run() only changes their
/// addresses.
class Primitive {
 public:
  Primitive() = default;
  /// `arguments` are pairs of DNNL_ARG_… and descriptor; `scratchpad` is the descriptor from the
  /// primitive descriptor.
  Primitive(Context& context, dnnl::primitive primitive,
            const std::vector<std::pair<int, memory::desc>>& arguments,
            const memory::desc& scratchpad = {});

  explicit operator bool() const { return context_ != nullptr; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }

  /// Sets the address of one argument. Arrays that oneDNN only reads may be const.
  void place(int argument, const void* data);
  void place(int argument, std::span<float> data) { place(argument, data.data()); }
  void place(int argument, const TensorView& view) { place(argument, view.data()); }
  void run(std::span<std::byte> scratch);

 private:
  Context* context_ = nullptr;
  dnnl::primitive primitive_;
  std::unordered_map<int, memory> arguments_;
  std::size_t scratch_bytes_ = 0;
};

/// A copy of an array in the layout that a primitive prefers, refreshed before each use. No copy is
/// made if the layouts are equal.
class Reorder {
 public:
  Reorder() = default;
  Reorder(Context& context, const memory::desc& from, const memory::desc& to);

  bool needed() const { return needed_; }
  /// Returns the source in the target's layout: `source` itself, or the copy.
  const void* read(const void* source);
  /// For the opposite direction, from a primitive's output to our layout: the address to which the
  /// primitive writes.
  void* target_of(float* destination) {
    return needed_ ? memory_from_.get_data_handle() : destination;
  }
  /// Copies the data written at target_of(destination) to `destination`.
  void write(float* destination);

  /// A reorder that owns its source buffer, the primitive's output.
  static Reorder from_own(Context& context, const memory::desc& from, const memory::desc& to);

 private:
  Context* context_ = nullptr;
  bool needed_ = false;
  memory memory_from_;
  memory memory_to_;
  dnnl::reorder reorder_;
};

}  // namespace lockstep::inline v0::model::cpu
