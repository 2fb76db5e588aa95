// Descriptors of the oneDNN primitives that the CPU operations use. oneDNN 2 and 3 create them
// differently, so each has its own source, in onednn_2/ and onednn_3/; CMake builds the one for the
// installed version. The rest of the oneDNN API used here is the same in both.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace lockstep::inline v0::model::cpu {

using dnnl::engine;
using dnnl::memory;
using dnnl::primitive_attr;
using dnnl::prop_kind;

/// A convolution. A `bias` without dimensions means no bias.
struct ConvolutionArrays {
  memory::desc source;
  memory::desc weights;
  memory::desc bias;
  memory::desc target;
  memory::dims strides;
  memory::dims dilates;  ///< pixels between neighboring elements of a window
  memory::dims padding_before;
  memory::dims padding_after;
};
dnnl::convolution_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                           const ConvolutionArrays& arrays,
                                                           const primitive_attr& attributes);
/// `arrays.weights` and `arrays.bias` describe their gradients.
dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const ConvolutionArrays& arrays, const primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward);
dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const ConvolutionArrays& arrays, const primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward);

/// target = source * transposed weights + bias. A `bias` without dimensions means no bias.
struct InnerProductArrays {
  memory::desc source;
  memory::desc weights;
  memory::desc bias;
  memory::desc target;
};
dnnl::inner_product_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                             const InnerProductArrays& arrays,
                                                             const primitive_attr& attributes);
/// `arrays.weights` and `arrays.bias` describe their gradients.
dnnl::inner_product_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const InnerProductArrays& arrays, const primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward);
dnnl::inner_product_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const InnerProductArrays& arrays, const primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward);

/// target = source * weights.
struct ProductArrays {
  memory::desc source;
  memory::desc weights;
  memory::desc target;
};
dnnl::matmul::primitive_desc describe_product(const engine& engine, const ProductArrays& arrays,
                                              const primitive_attr& attributes);

/// Softmax over the last axis of a matrix.
dnnl::softmax_forward::primitive_desc describe_softmax(const engine& engine, prop_kind kind,
                                                       const memory::desc& matrix,
                                                       const primitive_attr& attributes);
dnnl::softmax_backward::primitive_desc describe_softmax_backward(
    const engine& engine, const memory::desc& matrix, const primitive_attr& attributes,
    const dnnl::softmax_forward::primitive_desc& forward);

/// Sets the address of `memory` to `data`, for the work on `stream`.
void place(memory& memory, void* data, const dnnl::stream& stream);

}  // namespace lockstep::inline v0::model::cpu
