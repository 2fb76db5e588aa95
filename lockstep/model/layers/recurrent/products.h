// The matrix products of recurrent layers on a CPU.
#pragma once

#include <utility>
#include <vector>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/onednn.h"

namespace lockstep::inline v0::model::cpu {

/// result [rows, outputs] = source [rows, inputs] x transposed weights [outputs, inputs] + bias,
/// and its gradients. Weights are used for many rows, which amortizes copies in the layout that
/// oneDNN prefers.
class RecurrentProducts {
 public:
  struct Sizes {
    std::int64_t rows, inputs, outputs;
    bool bias;
    memory::data_type written;  // type of the result of a data product
  };

  RecurrentProducts() = default;
  RecurrentProducts(Context& context, const Sizes& s) {
    const Described d = describe(context, s, context.type);
    const InnerProductArrays arrays = {d.source, any_layout(context, s), d.bias,
                                       matrix(s.written, s.rows, s.outputs)};
    const auto description =
        describe_forward(context.engine, prop_kind::forward_training, arrays, user_scratchpad());
    weights_ = Reorder(context, d.weights, description.weights_desc());
    primitive_ = Primitive(context, dnnl::inner_product_forward(description),
                           with_bias(s, d,
                                     {{DNNL_ARG_SRC, d.source},
                                      {DNNL_ARG_WEIGHTS, description.weights_desc()},
                                      {DNNL_ARG_DST, arrays.target}},
                                     DNNL_ARG_BIAS),
                           description.scratchpad_desc());
  }
  // source = result x weights.
  static RecurrentProducts for_data(Context& context, const Sizes& s) {
    const Described d = describe(context, s, context.type);
    RecurrentProducts products;
    const InnerProductArrays arrays = {matrix(s.written, s.rows, s.inputs), any_layout(context, s),
                                       d.bias, d.result};
    const auto description =
        describe_backward_data(context.engine, arrays, user_scratchpad(), hint(context, d));
    products.weights_ = Reorder(context, d.weights, description.weights_desc());
    products.primitive_ = Primitive(context, dnnl::inner_product_backward_data(description),
                                    {{DNNL_ARG_DIFF_SRC, arrays.source},
                                     {DNNL_ARG_WEIGHTS, description.weights_desc()},
                                     {DNNL_ARG_DIFF_DST, d.result}},
                                    description.scratchpad_desc());
    return products;
  }
  // weights = transposed result x source, and bias = the sums of its columns.
  static RecurrentProducts for_weights(Context& context, const Sizes& s) {
    const Described d = describe(context, s, memory::data_type::f32);
    const InnerProductArrays arrays = {d.source, d.weights, d.bias, d.result};
    const auto description =
        describe_backward_weights(context.engine, arrays, user_scratchpad(),
                                  hint(context, describe(context, s, context.type)));
    RecurrentProducts products;
    products.primitive_ = Primitive(context, dnnl::inner_product_backward_weights(description),
                                    with_bias(s, d,
                                              {{DNNL_ARG_SRC, d.source},
                                               {DNNL_ARG_DIFF_WEIGHTS, d.weights},
                                               {DNNL_ARG_DIFF_DST, d.result}},
                                              DNNL_ARG_DIFF_BIAS),
                                    description.scratchpad_desc());
    return products;
  }

  Primitive& primitive() { return primitive_; }
  std::size_t scratch_bytes() const { return primitive_.scratch_bytes(); }
  // Call before products with new weights.
  void place_weights(const TensorView& weights) {
    primitive_.place(DNNL_ARG_WEIGHTS, weights_.read(weights.data()));
  }

 private:
  using Arguments = std::vector<std::pair<int, memory::desc>>;
  struct Described {
    memory::desc source, weights, bias, result;
  };

  static Described describe(const Context& context, const Sizes& s, memory::data_type weights) {
    return {.source = matrix(context.type, s.rows, s.inputs),
            .weights = matrix(weights, s.outputs, s.inputs),
            .bias = s.bias ? vector(memory::data_type::f32, s.outputs) : memory::desc(),
            .result = matrix(context.type, s.rows, s.outputs)};
  }
  static memory::desc any_layout(const Context& context, const Sizes& s) {
    return {{s.outputs, s.inputs}, context.type, memory::format_tag::any};
  }
  static dnnl::inner_product_forward::primitive_desc hint(const Context& context,
                                                          const Described& d) {
    const InnerProductArrays arrays = {d.source, d.weights, d.bias, d.result};
    return describe_forward(context.engine, prop_kind::forward_training, arrays, user_scratchpad());
  }
  static Arguments with_bias(const Sizes& s, const Described& d, Arguments arguments, int bias) {
    if (s.bias) arguments.emplace_back(bias, d.bias);
    return arguments;
  }

  Reorder weights_;
  Primitive primitive_;
};

}  // namespace lockstep::inline v0::model::cpu
