#include "lockstep/model/cpu/onednn.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/model/cpu/descriptors.h"

namespace lockstep::inline v0::model::cpu {

bool has_instructions(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);  // a larger set has the bits of a smaller one
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

std::int64_t lanes_of_onednn() {
  if (has_instructions(dnnl::cpu_isa::avx512_core)) return 16;
  return has_instructions(dnnl::cpu_isa::avx2) ? 8 : 4;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

bool is_wrong(dnnl::prop_kind pass, std::string_view implementation, const memory::dims& images,
              const memory::dims& results, const memory::dims& strides) {
  const bool is_bfloat16_pixel = implementation.starts_with("jit_bf16_1x1:");
  const bool uses_tiles = implementation.find("amx") != std::string_view::npos;
  if (pass == dnnl::prop_kind::backward_weights) {
    if (implementation.starts_with("jit_bf16:") || implementation.starts_with("brgconv_bwd_w:") ||
        uses_tiles)
      return images[3] < strides[1];
    std::int64_t lanes = is_bfloat16_pixel ? 16 : 0;
    if (implementation == "jit_1x1:avx2") lanes = 8;
    return images[1] < lanes && std::ranges::max(strides) > 1;
  }
  if (implementation == "jit_bf16_1x1:avx512_core") return true;
  const std::int64_t stride = std::ranges::max(strides);
  if (implementation == "brgconv:avx512_core_amx_bf16" && stride > 2) return true;
  if (uses_tiles && pass != dnnl::prop_kind::backward_data && implementation.starts_with("brg") &&
      stride > 1 && results[3] == 1)
    return true;
  return pass == dnnl::prop_kind::backward_data && is_bfloat16_pixel && results[1] % 2 != 0;
}

memory::desc image(memory::data_type type, std::int64_t batch, std::int64_t channels,
                   std::int64_t height, std::int64_t width) {
  return {{batch, channels, height, width}, type, memory::format_tag::nhwc};
}

memory::desc matrix(memory::data_type type, std::int64_t rows, std::int64_t columns) {
  return {{rows, columns}, type, memory::format_tag::ab};
}

memory::desc vector(memory::data_type type, std::int64_t elements) {
  return {{elements}, type, memory::format_tag::a};
}

Primitive::Primitive(Context& context, dnnl::primitive primitive,
                     const std::vector<std::pair<int, memory::desc>>& arguments,
                     const memory::desc& scratchpad)
    : context_(&context), primitive_(std::move(primitive)), scratch_bytes_(scratchpad.get_size()) {
  for (const auto& [argument, description] : arguments)
    arguments_.emplace(argument, memory(description, context.engine, nullptr));
  if (scratch_bytes_ > 0)
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, memory(scratchpad, context.engine, nullptr));
}

void Primitive::place(int argument, const void* data) {
  memory& target = arguments_.at(argument);
  // oneDNN has one type for arrays that it reads and arrays that it writes.
  if (target.get_data_handle() != data)
    cpu::place(target, const_cast<void*>(data), context_->stream);
}

void Primitive::run(std::span<std::byte> scratch) {
  if (scratch_bytes_ > 0) {
    LOCKSTEP_CHECK_OP(scratch.size(), >=, scratch_bytes_);
    place(DNNL_ARG_SCRATCHPAD, scratch.data());
  }
  primitive_.execute(context_->stream, arguments_);
}

Reorder::Reorder(Context& context, const memory::desc& from, const memory::desc& to)
    : context_(&context), needed_(from != to) {
  if (!needed_) return;
  memory_from_ = memory(from, context.engine, nullptr);
  memory_to_ = memory(to, context.engine);
  reorder_ = dnnl::reorder(memory_from_, memory_to_);
}

Reorder Reorder::from_own(Context& context, const memory::desc& from, const memory::desc& to) {
  Reorder reorder;
  reorder.context_ = &context;
  reorder.needed_ = from != to;
  if (!reorder.needed_) return reorder;
  reorder.memory_from_ = memory(from, context.engine);
  reorder.memory_to_ = memory(to, context.engine, nullptr);
  reorder.reorder_ = dnnl::reorder(reorder.memory_from_, reorder.memory_to_);
  return reorder;
}

const void* Reorder::read(const void* source) {
  if (!needed_) return source;
  place(memory_from_, const_cast<void*>(source), context_->stream);
  reorder_.execute(context_->stream, memory_from_, memory_to_);
  return memory_to_.get_data_handle();
}

void Reorder::write(float* destination) {
  if (!needed_) return;
  place(memory_to_, destination, context_->stream);
  reorder_.execute(context_->stream, memory_from_, memory_to_);
}

}  // namespace lockstep::inline v0::model::cpu
