// For builds without CUDA or cuDNN: refuses to train on GPUs and states what to install. Without a
// backend for GPUs, no layer is compiled for one.
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/cuda/library/cudnn_version.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::model {

std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& /*options*/,
                                          const ComputeHooks& /*hooks*/) {
  const std::string reason = device::gpu_unavailable_reason();
  throw Error(
      ErrorCategory::device, to_string(device),
      "expected a build with CUDA and cuDNN to train on it",
      reason.empty()
          ? "cuDNN was not found when this build was configured: install cuDNN 9 and reconfigure"
          : reason);
}

std::unique_ptr<Operation> AdditiveAttention::compile_gpu(const CompileContext&,
                                                          cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Attention::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> BatchNormalization::compile_gpu(const CompileContext&,
                                                           cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Conv2D::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Conv2DTranspose::compile_gpu(const CompileContext&,
                                                        cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> FullyConnected::compile_gpu(const CompileContext&,
                                                       cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Embedding::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> PositionalEmbedding::compile_gpu(const CompileContext&,
                                                            cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> RowNormalization::compile_gpu(const CompileContext&,
                                                         cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> GroupNormalization::compile_gpu(const CompileContext&,
                                                           cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> MatMul::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Pool2D::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> GlobalAveragePooling1D::compile_gpu(const CompileContext&,
                                                               cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Recurrent::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> UpSampling2D::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> ReLU::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> PointwiseLayer::compile_gpu(const CompileContext&,
                                                       cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Dropout::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Add::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Multiply::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> CopyLayer::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}
std::unique_ptr<Operation> Softmax::compile_gpu(const CompileContext&, cuda::Context&) const {
  return nullptr;
}

std::string cudnn_built_version() { return "absent"; }
std::string cudnn_loaded_version() { return "absent"; }

}  // namespace lockstep::inline v0::model
