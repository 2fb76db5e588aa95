// Layers that make a network observable: custom layers, so each test that uses one also tests
// those.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/model/custom_layer.h"

namespace lockstep::model {

/// y = x + offset, with a trained offset of the input's shape, 0 at first. The gradient of the
/// offset is the sum over the batch of what the next layer says of its input.
class Shift final : public CustomLayer {
 public:
  std::string kind() const override { return "shift"; }
  Shape build(BuildContext& context) const override;
  Needs needs(const CompileContext& context) const override;
  void forward(const Tensors& tensors, const PassContext& pass) const override;
  void backward(const Tensors& tensors, const PassContext& pass) const override;
};

/// What passed a Probe last.
struct Recording {
  std::vector<float> values;
  std::vector<float> gradient;
  bool training = false;
};

/// The identity, written down: shares `recording` with whoever reads it. One replica at a time.
class Probe final : public CustomLayer {
 public:
  explicit Probe(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
  std::string kind() const override { return "probe"; }
  Shape build(BuildContext& context) const override { return context.input(); }
  Needs needs(const CompileContext& context) const override;
  void forward(const Tensors& tensors, const PassContext& pass) const override;
  void backward(const Tensors& tensors, const PassContext& pass) const override;

 private:
  std::shared_ptr<Recording> recording_;
};

}  // namespace lockstep::model
