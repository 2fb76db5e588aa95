// Descriptors of the oneDNN primitives that the CPU operations use. oneDNN 2 and 3 create them
// differently, so each has its own source, in onednn_2/ and onednn_3/; CMake builds the one for the
// installed version. The rest of the oneDNN API used here is the same in both.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace lockstep::model::cpu {

/// A convolution without dilation. A `bias` without dimensions means no bias.
struct ConvolutionArrays {
  dnnl::memory::desc source;
  dnnl::memory::desc weights;
  dnnl::memory::desc bias;
  dnnl::memory::desc target;
  dnnl::memory::dims strides;
  dnnl::memory::dims padding_before;
  dnnl::memory::dims padding_after;
};
dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           dnnl::prop_kind kind,
                                                           const ConvolutionArrays& arrays,
                                                           const dnnl::primitive_attr& attributes);
/// `arrays.weights` and `arrays.bias` describe their gradients.
dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionArrays& arrays,
    const dnnl::primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward);
dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionArrays& arrays,
    const dnnl::primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward);

/// target = source * transposed weights + bias. A `bias` without dimensions means no bias.
struct InnerProductArrays {
  dnnl::memory::desc source;
  dnnl::memory::desc weights;
  dnnl::memory::desc bias;
  dnnl::memory::desc target;
};
dnnl::inner_product_forward::primitive_desc describe_forward(
    const dnnl::engine& engine, dnnl::prop_kind kind, const InnerProductArrays& arrays,
    const dnnl::primitive_attr& attributes);
/// `arrays.weights` and `arrays.bias` describe their gradients.
dnnl::inner_product_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const InnerProductArrays& arrays,
    const dnnl::primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward);
dnnl::inner_product_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const InnerProductArrays& arrays,
    const dnnl::primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward);

/// A pooling without dilation.
struct PoolingArrays {
  dnnl::algorithm algorithm;
  dnnl::memory::desc source;
  dnnl::memory::desc target;
  dnnl::memory::dims strides;
  dnnl::memory::dims kernel;
  dnnl::memory::dims padding_before;
  dnnl::memory::dims padding_after;
};
dnnl::pooling_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                       dnnl::prop_kind kind,
                                                       const PoolingArrays& arrays,
                                                       const dnnl::primitive_attr& attributes);
dnnl::pooling_backward::primitive_desc describe_backward(
    const dnnl::engine& engine, const PoolingArrays& arrays, const dnnl::primitive_attr& attributes,
    const dnnl::pooling_forward::primitive_desc& forward);

/// Source, target and their gradients all have the descriptor `array`.
struct BatchNormalizationArrays {
  dnnl::memory::desc array;
  float epsilon;
  dnnl::normalization_flags flags;
};
dnnl::batch_normalization_forward::primitive_desc describe_forward(
    const dnnl::engine& engine, dnnl::prop_kind kind, const BatchNormalizationArrays& arrays,
    const dnnl::primitive_attr& attributes);
dnnl::batch_normalization_backward::primitive_desc describe_backward(
    const dnnl::engine& engine, const BatchNormalizationArrays& arrays,
    const dnnl::primitive_attr& attributes,
    const dnnl::batch_normalization_forward::primitive_desc& forward);

/// Whether the arguments of backward include the shift, which backward does not read.
bool batch_normalization_backward_takes_shift();

/// max(x, 0). In training, the derivative is computed from the output.
dnnl::eltwise_forward::primitive_desc describe_relu(const dnnl::engine& engine, bool training,
                                                    const dnnl::memory::desc& array);
dnnl::eltwise_backward::primitive_desc describe_relu_backward(
    const dnnl::engine& engine, const dnnl::memory::desc& array,
    const dnnl::eltwise_forward::primitive_desc& forward);
/// Applies max(x, 0) to the output of a primitive.
void append_relu(dnnl::primitive_attr& attributes);

/// Over the last axis of a matrix.
dnnl::softmax_forward::primitive_desc describe_softmax(const dnnl::engine& engine,
                                                       dnnl::prop_kind kind,
                                                       const dnnl::memory::desc& matrix,
                                                       const dnnl::primitive_attr& attributes);
dnnl::softmax_backward::primitive_desc describe_softmax_backward(
    const dnnl::engine& engine, const dnnl::memory::desc& matrix,
    const dnnl::primitive_attr& attributes, const dnnl::softmax_forward::primitive_desc& forward);

/// Sets the address of `memory` to `data`, for the work on `stream`.
void place(dnnl::memory& memory, void* data, const dnnl::stream& stream);

}  // namespace lockstep::model::cpu
