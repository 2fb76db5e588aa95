// The header of c10d's reducer includes this file, which Debian's package leaves out. What it takes
// from it are the names of a type of callbacks and of pointers that stay null.
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
