// Custom layers that make a network observable. Tests with them also test custom layers.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/model/layer/custom_layer.h"

namespace lockstep::inline v0::model {

/// y = x + offset, with a trained offset of the input's shape, initially 0. The gradient of the
/// offset is the sum of the next layer's input gradient over the batch.
class Shift final : public CustomLayer {
 public:
  std::string kind() const override { return "shift"; }
  Shape build(BuildContext& context) const override;
  Needs needs(const CompileContext& context) const override;
  void forward(const Tensors& tensors, const PassContext& pass) const override;
  void backward(const Tensors& tensors, const PassContext& pass) const override;
};

/// The last values that passed a Probe.
struct Recording {
  std::vector<float> values;
  std::vector<float> gradient;
  bool training = false;
};

/// The identity, which records its values in the shared `recording`. One replica at a time.
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

}  // namespace lockstep::inline v0::model
