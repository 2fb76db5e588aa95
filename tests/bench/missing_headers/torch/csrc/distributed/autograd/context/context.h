// The header of c10d's reducer includes this file, which Debian's package lacks. It uses only the
// names of a callback type and of pointers that stay null.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(torch::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
