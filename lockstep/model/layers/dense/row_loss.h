// A fully connected layer whose output only the cross-entropy reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/model/layers/dense/dense.h"

namespace lockstep::inline v0::model {

/// `Layer`, the operation of a fully connected layer on one kind of device, and the loss of its
/// output: some rows at a time, so that the logits of a batch are never stored whole, nor their
/// gradient (Hsu et al., "Liger Kernel", arXiv 2410.10989; Wijmans et al., "Cut your losses in
/// large-vocabulary language models", arXiv 2411.09009). For each block of rows, backward computes
/// the logits, the loss, whose gradient overwrites them, and the gradients of input and parameters.
/// Logits are computed once, as without blocks.
///
/// `Layer` is constructed from a device's context and a DenseSpec; if that has `loss_rows`, its
/// backward honors Operands::add_parameter_gradient for all its parameters. Between the rows of
/// logits there may be a gap (DenseSpec::row_stride).
template <typename Layer>
class DenseLossOperation final : public Operation {
 public:
  template <typename Context>
  DenseLossOperation(Context& context, const DenseSpec& spec)
      : spec_(spec),
        row_stride_(std::max(spec.row_stride, spec.units)),
        block_(context, with_rows(spec, spec.loss_rows)) {
    if (const std::int64_t last_rows = spec.rows % spec.loss_rows; last_rows > 0)
      last_block_.emplace(context, with_rows(spec, last_rows));
  }

  Needs needs() const override {
    Needs needs = block_.needs();
    if (last_block_)
      needs.scratch_bytes = std::max(needs.scratch_bytes, last_block_->needs().scratch_bytes);
    needs.row_stride = row_stride_;
    return needs;
  }

  void forward(const Operands& /*operands*/, const PassContext& /*pass*/) override {}

  void backward(const Operands& all, const PassContext& /*pass*/) override {
    Operands& o = block_operands_;
    o.weights = all.weights;
    o.parameters = all.parameters;
    o.parameter_gradients = all.parameter_gradients;
    o.scratch = all.scratch;
    o.inputs.resize(1);
    o.input_gradients.resize(1);
    for (std::int64_t first = 0; first < spec_.rows; first += spec_.loss_rows) {
      const std::int64_t rows = std::min(spec_.loss_rows, spec_.rows - first);
      Layer& layer = rows == spec_.loss_rows ? block_ : *last_block_;
      o.inputs[0] = row_block(all.inputs[0], first, rows, spec_.inputs);
      o.input_gradients[0] = row_block(all.input_gradients[0], first, rows, spec_.inputs);
      o.output = row_block(all.output, 0, rows, row_stride_);
      o.output_gradient = o.output;
      o.add_parameter_gradient = first > 0;
      layer.forward(o, {});
      all.loss(o.output, first, rows);
      layer.backward(o, {});
    }
  }

 private:
  static DenseSpec with_rows(DenseSpec spec, std::int64_t rows) {
    spec.rows = rows;
    return spec;
  }
  static TensorView row_block(const TensorView& array, std::int64_t first, std::int64_t rows,
                              std::int64_t columns) {
    if (array.empty()) return {};
    const std::size_t begin = static_cast<std::size_t>(first * columns);
    return {static_cast<std::byte*>(array.data()) + begin * element_bytes(array.type()),
            static_cast<std::size_t>(rows * columns), array.type()};
  }

  DenseSpec spec_;
  std::int64_t row_stride_;
  Layer block_;
  std::optional<Layer> last_block_;  // the last block, if it has fewer rows
  Operands block_operands_;
};

}  // namespace lockstep::inline v0::model
