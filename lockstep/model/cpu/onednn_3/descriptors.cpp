#include "lockstep/model/cpu/descriptors.h"

#include "lockstep/base/error.h"
#include "lockstep/model/cpu/onednn.h"

namespace lockstep::inline v0::model::cpu {

using namespace dnnl;

namespace {

constexpr auto kConvolution = algorithm::convolution_direct;
constexpr auto kSoftmax = algorithm::softmax_accurate;

// The first correct implementation of a pass.
template <typename Description>
Description first_right(Description found, prop_kind pass, const ConvolutionArrays& a) {
  while (is_wrong(pass, found.impl_info_str(), a.source.get_dims(), a.target.get_dims(), a.strides))
    LOCKSTEP_CHECK(found.next_impl());
  return found;
}

}  // namespace

convolution_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                     const ConvolutionArrays& a,
                                                     const primitive_attr& attributes) {
  return first_right(convolution_forward::primitive_desc(
                         engine, kind, kConvolution, a.source, a.weights, a.bias, a.target,
                         a.strides, a.dilates, a.padding_before, a.padding_after, attributes),
                     kind, a);
}

convolution_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const ConvolutionArrays& a, const primitive_attr& attributes,
    const convolution_forward::primitive_desc& forward) {
  return first_right(convolution_backward_weights::primitive_desc(
                         engine, kConvolution, a.source, a.weights, a.bias, a.target, a.strides,
                         a.dilates, a.padding_before, a.padding_after, forward, attributes),
                     prop_kind::backward_weights, a);
}

convolution_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const ConvolutionArrays& a, const primitive_attr& attributes,
    const convolution_forward::primitive_desc& forward) {
  return first_right(convolution_backward_data::primitive_desc(
                         engine, kConvolution, a.source, a.weights, a.target, a.strides, a.dilates,
                         a.padding_before, a.padding_after, forward, attributes),
                     prop_kind::backward_data, a);
}

inner_product_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                       const InnerProductArrays& a,
                                                       const primitive_attr& attributes) {
  return {engine, kind, a.source, a.weights, a.bias, a.target, attributes};
}

inner_product_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const InnerProductArrays& a, const primitive_attr& attributes,
    const inner_product_forward::primitive_desc& forward) {
  return {engine, a.source, a.weights, a.bias, a.target, forward, attributes};
}

inner_product_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const InnerProductArrays& a, const primitive_attr& attributes,
    const inner_product_forward::primitive_desc& forward) {
  return {engine, a.source, a.weights, a.target, forward, attributes};
}

matmul::primitive_desc describe_product(const engine& engine, const ProductArrays& a,
                                        const primitive_attr& attributes) {
  return {engine, a.source, a.weights, a.target, attributes};
}

softmax_forward::primitive_desc describe_softmax(const engine& engine, prop_kind kind,
                                                 const memory::desc& matrix,
                                                 const primitive_attr& attributes) {
  return {engine, kind, kSoftmax, matrix, matrix, 1, attributes};
}

softmax_backward::primitive_desc describe_softmax_backward(
    const engine& engine, const memory::desc& matrix, const primitive_attr& attributes,
    const softmax_forward::primitive_desc& forward) {
  return {engine, kSoftmax, matrix, matrix, matrix, 1, forward, attributes};
}

// The memory is on the CPU, the device of the stream; this call is synchronous.
void place(memory& memory, void* data, const stream& /*stream*/) { memory.set_data_handle(data); }

}  // namespace lockstep::inline v0::model::cpu
