// Base class of the layers of this library.
#pragma once

#include <memory>

#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::model {

namespace cpu {
struct Context;
}
namespace cuda {
class Context;
}

/// A layer with an implementation for each kind of device, in the folder of its kind: cpu.cpp, and
/// cuda.cpp, replaced by cuda/no_cuda.cpp where CUDA is absent. layers.h lists all kinds.
class BuiltinLayer : public Layer {
 public:
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const final;

  /// compile() for a CPU replica. `cpu` must outlive the operation.
  virtual std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                                 cpu::Context& cpu) const = 0;
  /// compile() for a GPU replica, whose GPU is current. `gpu` must outlive the operation.
  virtual std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                                 cuda::Context& gpu) const = 0;
};

}  // namespace lockstep::inline v0::model
