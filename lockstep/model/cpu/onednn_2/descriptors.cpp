#include "lockstep/model/cpu/descriptors.h"

#include "lockstep/base/error.h"
#include "lockstep/model/cpu/onednn.h"

namespace lockstep::inline v0::model::cpu {

using namespace dnnl;

namespace {

constexpr auto kConvolution = algorithm::convolution_direct;

// The first correct implementation of a pass. Queries the description again.
template <typename Description>
Description first_right(Description found, prop_kind pass, const ConvolutionArrays& a) {
  while (is_wrong(pass, found.impl_info_str(), a.source.dims(), a.target.dims(), a.strides))
    LOCKSTEP_CHECK(found.next_impl());
  return found;
}

}  // namespace

convolution_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                     const ConvolutionArrays& a,
                                                     const primitive_attr& attributes) {
  const convolution_forward::desc pass(kind, kConvolution, a.source, a.weights, a.bias, a.target,
                                       a.strides, a.dilates, a.padding_before, a.padding_after);
  return first_right(convolution_forward::primitive_desc(pass, attributes, engine), kind, a);
}

convolution_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const ConvolutionArrays& a, const primitive_attr& attributes,
    const convolution_forward::primitive_desc& forward) {
  const convolution_backward_weights::desc pass(kConvolution, a.source, a.weights, a.bias, a.target,
                                                a.strides, a.dilates, a.padding_before,
                                                a.padding_after);
  return first_right(
      convolution_backward_weights::primitive_desc(pass, attributes, engine, forward),
      prop_kind::backward_weights, a);
}

convolution_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const ConvolutionArrays& a, const primitive_attr& attributes,
    const convolution_forward::primitive_desc& forward) {
  const convolution_backward_data::desc pass(kConvolution, a.source, a.weights, a.target, a.strides,
                                             a.dilates, a.padding_before, a.padding_after);
  return first_right(convolution_backward_data::primitive_desc(pass, attributes, engine, forward),
                     prop_kind::backward_data, a);
}

inner_product_forward::primitive_desc describe_forward(const engine& engine, prop_kind kind,
                                                       const InnerProductArrays& a,
                                                       const primitive_attr& attributes) {
  return {{kind, a.source, a.weights, a.bias, a.target}, attributes, engine};
}

inner_product_backward_weights::primitive_desc describe_backward_weights(
    const engine& engine, const InnerProductArrays& a, const primitive_attr& attributes,
    const inner_product_forward::primitive_desc& forward) {
  return {{a.source, a.weights, a.bias, a.target}, attributes, engine, forward};
}

inner_product_backward_data::primitive_desc describe_backward_data(
    const engine& engine, const InnerProductArrays& a, const primitive_attr& attributes,
    const inner_product_forward::primitive_desc& forward) {
  return {{a.source, a.weights, a.target}, attributes, engine, forward};
}

matmul::primitive_desc describe_product(const engine& engine, const ProductArrays& a,
                                        const primitive_attr& attributes) {
  return {{a.source, a.weights, a.target}, attributes, engine};
}

softmax_forward::primitive_desc describe_softmax(const engine& engine, prop_kind kind,
                                                 const memory::desc& matrix,
                                                 const primitive_attr& attributes) {
  return {{kind, matrix, 1}, attributes, engine};
}

softmax_backward::primitive_desc describe_softmax_backward(
    const engine& engine, const memory::desc& matrix, const primitive_attr& attributes,
    const softmax_forward::primitive_desc& forward) {
  return {{matrix, matrix, 1}, attributes, engine, forward};
}

void place(memory& memory, void* data, const stream& stream) {
  memory.set_data_handle(data, stream);
}

}  // namespace lockstep::inline v0::model::cpu
