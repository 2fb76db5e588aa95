#include "lockstep/model/cpu/descriptors.h"

namespace lockstep::model::cpu {
namespace {

constexpr auto kConvolution = dnnl::algorithm::convolution_direct;

}  // namespace

dnnl::convolution_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                           dnnl::prop_kind kind,
                                                           const ConvolutionArrays& a,
                                                           const dnnl::primitive_attr& attributes) {
  return {{kind, kConvolution, a.source, a.weights, a.bias, a.target, a.strides, a.padding_before,
           a.padding_after},
          attributes,
          engine};
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const ConvolutionArrays& a, const dnnl::primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return {{kConvolution, a.source, a.weights, a.bias, a.target, a.strides, a.padding_before,
           a.padding_after},
          attributes,
          engine,
          forward};
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const ConvolutionArrays& a, const dnnl::primitive_attr& attributes,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return {
      {kConvolution, a.source, a.weights, a.target, a.strides, a.padding_before, a.padding_after},
      attributes,
      engine,
      forward};
}

dnnl::inner_product_forward::primitive_desc describe_forward(
    const dnnl::engine& engine, dnnl::prop_kind kind, const InnerProductArrays& a,
    const dnnl::primitive_attr& attributes) {
  return {{kind, a.source, a.weights, a.bias, a.target}, attributes, engine};
}

dnnl::inner_product_backward_weights::primitive_desc describe_backward_weights(
    const dnnl::engine& engine, const InnerProductArrays& a, const dnnl::primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return {{a.source, a.weights, a.bias, a.target}, attributes, engine, forward};
}

dnnl::inner_product_backward_data::primitive_desc describe_backward_data(
    const dnnl::engine& engine, const InnerProductArrays& a, const dnnl::primitive_attr& attributes,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return {{a.source, a.weights, a.target}, attributes, engine, forward};
}

dnnl::pooling_forward::primitive_desc describe_forward(const dnnl::engine& engine,
                                                       dnnl::prop_kind kind, const PoolingArrays& a,
                                                       const dnnl::primitive_attr& attributes) {
  return {{kind, a.algorithm, a.source, a.target, a.strides, a.kernel, a.padding_before,
           a.padding_after},
          attributes,
          engine};
}

dnnl::pooling_backward::primitive_desc describe_backward(
    const dnnl::engine& engine, const PoolingArrays& a, const dnnl::primitive_attr& attributes,
    const dnnl::pooling_forward::primitive_desc& forward) {
  return {{a.algorithm, a.source, a.target, a.strides, a.kernel, a.padding_before, a.padding_after},
          attributes,
          engine,
          forward};
}

dnnl::batch_normalization_forward::primitive_desc describe_forward(
    const dnnl::engine& engine, dnnl::prop_kind kind, const BatchNormalizationArrays& a,
    const dnnl::primitive_attr& attributes) {
  return {{kind, a.array, a.epsilon, a.flags}, attributes, engine};
}

dnnl::batch_normalization_backward::primitive_desc describe_backward(
    const dnnl::engine& engine, const BatchNormalizationArrays& a,
    const dnnl::primitive_attr& attributes,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
  return {{dnnl::prop_kind::backward, a.array, a.array, a.epsilon, a.flags},
          attributes,
          engine,
          forward};
}

bool batch_normalization_backward_takes_shift() { return true; }

dnnl::eltwise_forward::primitive_desc describe_relu(const dnnl::engine& engine, bool training,
                                                    const dnnl::memory::desc& array) {
  const auto algorithm =
      training ? dnnl::algorithm::eltwise_relu_use_dst_for_bwd : dnnl::algorithm::eltwise_relu;
  const auto kind =
      training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  return {{kind, algorithm, array, 0.0f, 0.0f}, engine};
}

dnnl::eltwise_backward::primitive_desc describe_relu_backward(
    const dnnl::engine& engine, const dnnl::memory::desc& array,
    const dnnl::eltwise_forward::primitive_desc& forward) {
  return {
      {dnnl::algorithm::eltwise_relu_use_dst_for_bwd, array, array, 0.0f, 0.0f}, engine, forward};
}

void append_relu(dnnl::primitive_attr& attributes) {
  dnnl::post_ops operations;
  operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attributes.set_post_ops(operations);
}

dnnl::softmax_forward::primitive_desc describe_softmax(const dnnl::engine& engine,
                                                       dnnl::prop_kind kind,
                                                       const dnnl::memory::desc& matrix,
                                                       const dnnl::primitive_attr& attributes) {
  return {{kind, matrix, 1}, attributes, engine};
}

dnnl::softmax_backward::primitive_desc describe_softmax_backward(
    const dnnl::engine& engine, const dnnl::memory::desc& matrix,
    const dnnl::primitive_attr& attributes, const dnnl::softmax_forward::primitive_desc& forward) {
  return {{matrix, matrix, 1}, attributes, engine, forward};
}

void place(dnnl::memory& memory, void* data, const dnnl::stream& stream) {
  memory.set_data_handle(data, stream);
}

}  // namespace lockstep::model::cpu
