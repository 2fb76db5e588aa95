#include <algorithm>
#include <memory>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/attention/cudnn_attention.h"
#include "lockstep/model/layers/attention/kernels.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class AttentionOperation final : public Operation {
 public:
  AttentionOperation(Context& context, const AttentionSpec& spec)
      : context_(context),
        spec_(spec),
        cudnn_(choose_attention(context, spec)),
        rotations_at_(scratch_.add(rotation_bytes(spec))),
        products_at_(scratch_.add(spec.saved_bytes())),
        cudnn_at_(scratch_.add(cudnn_ != nullptr ? cudnn_->scratch_bytes() : 0)) {}

  Needs needs() const override {
    return {.saved_bytes = spec_.saved_bytes(), .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    if (cudnn_ != nullptr)
      cudnn_->forward(arrays(o), scratch_of_cudnn(o));
    else
      attend(arrays(o), spec_, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (std::ranges::all_of(o.input_gradients, &TensorView::empty)) return;
    AttentionArrays all = arrays(o);
    all.output_gradient = o.output_gradient;
    all.products = reinterpret_cast<float*>(part_of(o.scratch, products_at_));
    for (std::size_t k = 0; k < all.gradients.size(); ++k)
      all.gradients[k] = o.input_gradients[spec_.part(k).input];
    // cuDNN writes all gradients.
    if (cudnn_ != nullptr && std::ranges::none_of(all.gradients, &TensorView::empty))
      cudnn_->backward(all, scratch_of_cudnn(o));
    else
      attention_gradients(all, spec_, context_.native());
  }

 private:
  // Also writes the rotations: scratch memory does not persist between passes.
  AttentionArrays arrays(const Operands& o) const {
    AttentionArrays all;
    for (std::size_t k = 0; k < all.inputs.size(); ++k)
      all.inputs[k] = o.inputs[spec_.part(k).input];
    all.output = o.output;
    all.segments = o.indices.data();
    all.divisors = reinterpret_cast<float*>(o.saved.data());
    if (spec_.rotary > 0) {
      all.rotations = part_of(o.scratch, rotations_at_);
      write_rotations(spec_, all.rotations, context_.native());
    }
    return all;
  }

  std::span<std::byte> scratch_of_cudnn(const Operands& o) const {
    return {part_of(o.scratch, cudnn_at_), cudnn_->scratch_bytes()};
  }

  Context& context_;
  AttentionSpec spec_;
  std::unique_ptr<CudnnAttention> cudnn_;  // null: our own kernels
  ScratchPlan scratch_;
  std::size_t rotations_at_;
  std::size_t products_at_;
  std::size_t cudnn_at_;
};

// Attention of some rows of a sequence, after passes over the previous ones.
class CachedAttentionOperation final : public Operation {
 public:
  CachedAttentionOperation(Context& context, const AttentionSpec& spec)
      : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.cache_bytes = cache_bytes(spec_, context_.options().precision)};
  }

  void forward(const Operands& o, const PassContext& pass) override {
    AttentionArrays all;
    for (std::size_t k = 0; k < all.inputs.size(); ++k)
      all.inputs[k] = o.inputs[spec_.part(k).input];
    all.output = o.output;
    attend_in_cache(all, spec_, o.cache.data(), pass.position, context_.native());
  }

  void backward(const Operands& /*o*/, const PassContext& /*pass*/) override {
    LOCKSTEP_CHECK(!spec_.cached);
  }

 private:
  Context& context_;
  AttentionSpec spec_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Attention::compile_gpu(const CompileContext& context,
                                                  cuda::Context& gpu) const {
  const AttentionSpec attention = spec(context);
  if (attention.cached) return std::make_unique<cuda::CachedAttentionOperation>(gpu, attention);
  return std::make_unique<cuda::AttentionOperation>(gpu, attention);
}

}  // namespace lockstep::inline v0::model
