#include <span>
#include <utility>
#include <vector>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/shape/kernels.h"
#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/model/layers/shape/strided_copy.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class CopyOperation final : public Operation {
 public:
  CopyOperation(Context& context, std::vector<StridedCopy> copies)
      : context_(context), copies_(std::move(copies)) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    clear_gaps(copies_, o.output);
    for (std::size_t k = 0; k < copies_.size(); ++k)
      copy_strided(copies_[k], o.inputs[k], o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    for (std::size_t k = 0; k < copies_.size(); ++k) {
      if (o.input_gradients[k].empty()) continue;
      clear_gaps({&copies_[k], 1}, o.input_gradients[k]);
      copy_strided(copies_[k].reversed(), o.output_gradient, o.input_gradients[k],
                   context_.native());
    }
  }

 private:
  void clear_gaps(std::span<const StridedCopy> copies, const TensorView& target) const {
    if (leaves_gaps(copies, target))
      device::cuda::check(cudaMemsetAsync(target.data(), 0, target.size_bytes(), context_.native()),
                          "zeros");
  }

  Context& context_;
  std::vector<StridedCopy> copies_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> CopyLayer::compile_gpu(const CompileContext& context,
                                                  cuda::Context& gpu) const {
  return std::make_unique<cuda::CopyOperation>(gpu, copies(context));
}

}  // namespace lockstep::inline v0::model
