#include "lockstep/model/layers/attention/attention_graph.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// [batch, heads, rows, columns], dense.
TensorSizes dense_strides(const TensorSizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

TensorSizes exchanged(TensorSizes sizes) {
  std::swap(sizes[2], sizes[3]);
  return sizes;
}

}  // namespace

AttentionGraph::AttentionGraph(cudnnHandle_t handle, cudnnDataType_t type,
                               const AttentionSpec& spec, AttentionPass pass)
    : type_(type), spec_(spec), whole_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  LOCKSTEP_CHECK(!spec.segments && spec.rotary == 0 && !spec.cached);
  if (pass == AttentionPass::forward)
    describe_forward();
  else
    describe_backward();
  std::ranges::sort(ids_);
  whole_.refer_to(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  whole_.finalize();
}

AttentionGraph::Tensor AttentionGraph::add_tensor(std::int64_t id, cudnnDataType_t type,
                                                  const TensorSizes& sizes,
                                                  const TensorSizes& strides, TensorMemory memory) {
  if (memory != TensorMemory::none) ids_.push_back(id);
  return parts_.emplace_back(describe_tensor(id, type, sizes, strides, memory));
}

AttentionGraph::Tensor AttentionGraph::add_part(std::int64_t id, std::size_t which,
                                                bool transposed) {
  const std::int64_t heads = which == 0 ? spec_.heads : spec_.key_value_heads;
  const std::int64_t rows = which == 0 ? spec_.queries : spec_.keys;
  const std::int64_t stride = spec_.part(which).stride;
  const TensorSizes sizes{spec_.batch, heads, rows, spec_.width};
  const TensorSizes strides{rows * stride, spec_.width, stride, 1};
  if (transposed) return add_tensor(id, type_, exchanged(sizes), exchanged(strides));
  return add_tensor(id, type_, sizes, strides);
}

AttentionGraph::Tensor AttentionGraph::add_output(std::int64_t id) {
  const std::int64_t row = spec_.heads * spec_.width;
  return add_tensor(id, type_, {spec_.batch, spec_.heads, spec_.queries, spec_.width},
                    {spec_.queries * row, spec_.width, row, 1});
}

AttentionGraph::Tensor AttentionGraph::add_row_values(std::int64_t id, TensorMemory memory) {
  const TensorSizes sizes{spec_.batch, spec_.heads, spec_.queries, 1};
  return add_tensor(id, CUDNN_DATA_FLOAT, sizes, dense_strides(sizes), memory);
}

AttentionGraph::Tensor AttentionGraph::add_number(std::int64_t id) {
  constexpr TensorSizes kOneValue{1, 1, 1, 1};
  return add_tensor(id, CUDNN_DATA_FLOAT, kOneValue, kOneValue, TensorMemory::host);
}

AttentionGraph::Tensor AttentionGraph::scores(cudnnDataType_t type) {
  const TensorSizes sizes{spec_.batch, spec_.heads, spec_.queries, spec_.keys};
  return add_tensor(next_virtual_++, type, sizes, dense_strides(sizes), TensorMemory::none);
}

const GraphDescriptor& AttentionGraph::add_operation(GraphDescriptor operation) {
  operations_.push_back(&parts_.emplace_back(std::move(operation)).finalize());
  return *operations_.back();
}

void AttentionGraph::multiply(Tensor left, Tensor right, Tensor product) {
  GraphDescriptor& descriptor = parts_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  GraphDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.refer_to(CUDNN_ATTR_OPERATION_MATMUL_DESC, descriptor)
      .refer_to(CUDNN_ATTR_OPERATION_MATMUL_ADESC, left)
      .refer_to(CUDNN_ATTR_OPERATION_MATMUL_BDESC, right)
      .refer_to(CUDNN_ATTR_OPERATION_MATMUL_CDESC, product);
  add_operation(std::move(operation));
}

void AttentionGraph::transpose(Tensor from, Tensor to) {
  GraphDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.refer_to(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from)
      .refer_to(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
  add_operation(std::move(operation));
}

void AttentionGraph::reduce(cudnnReduceTensorOp_t by, Tensor from, Tensor to) {
  GraphDescriptor& descriptor = parts_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_REDUCTION_OPERATOR, by)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  GraphDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.refer_to(CUDNN_ATTR_OPERATION_REDUCTION_DESC, descriptor)
      .refer_to(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from)
      .refer_to(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
  add_operation(std::move(operation));
}

void AttentionGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, const GraphDescriptor* b,
                               Tensor y, cudnnDataType_t type, const GraphDescriptor* select,
                               std::int64_t axis) {
  GraphDescriptor& descriptor = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, type);
  if (axis >= 0) descriptor.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  descriptor.finalize();
  GraphDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) operation.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (select != nullptr) operation.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *select);
  add_operation(std::move(operation));
}

AttentionGraph::Tensor AttentionGraph::masked(Tensor all) {
  if (!spec_.causal) return all;
  constexpr std::int64_t kQueryAxis = 2;
  constexpr std::int64_t kKeyAxis = 3;
  Tensor query = scores(CUDNN_DATA_INT32);
  Tensor key = scores(CUDNN_DATA_INT32);
  Tensor is_seen = scores(CUDNN_DATA_BOOLEAN);
  Tensor seen = scores();
  pointwise(CUDNN_POINTWISE_GEN_INDEX, all, nullptr, query, CUDNN_DATA_FLOAT, nullptr, kQueryAxis);
  pointwise(CUDNN_POINTWISE_GEN_INDEX, all, nullptr, key, CUDNN_DATA_FLOAT, nullptr, kKeyAxis);
  pointwise(CUDNN_POINTWISE_CMP_GE, query, &key, is_seen, CUDNN_DATA_BOOLEAN);
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, all, &add_number(kHidden), seen, CUDNN_DATA_FLOAT,
            &is_seen);
  return seen;
}

// cuDNN selects its engines by the order and the kind of the operations.
void AttentionGraph::describe_forward() {
  Tensor products = scores();
  Tensor scaled = scores();
  multiply(add_part(kQueries, 0, false), add_part(kKeys, 1, true), products);
  pointwise(CUDNN_POINTWISE_MUL, products, &add_number(kScale), scaled);
  Tensor seen = masked(scaled);

  Tensor maxima = row_values();
  Tensor distances = scores();
  Tensor exponentials = scores();
  Tensor sums = row_values();
  Tensor logarithms = row_values();
  reduce(CUDNN_REDUCE_TENSOR_MAX, seen, maxima);
  pointwise(CUDNN_POINTWISE_SUB, seen, &maxima, distances);
  pointwise(CUDNN_POINTWISE_EXP, distances, nullptr, exponentials);
  reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sums);
  pointwise(CUDNN_POINTWISE_LOG, sums, nullptr, logarithms);
  // Also in inference, where they are unused: no engine works without them.
  Tensor divisors = spec_.training ? add_row_values(kDivisors, TensorMemory::gpu) : row_values();
  pointwise(CUDNN_POINTWISE_ADD, maxima, &logarithms, divisors);
  Tensor weights = scores(type_);
  pointwise(CUDNN_POINTWISE_DIV, exponentials, &sums, weights);
  multiply(weights, add_part(kValues, 2, false), add_output(kOutput));
}

void AttentionGraph::describe_backward() {
  Tensor output_gradient = add_output(kOutputGradient);
  Tensor queries = add_part(kQueries, 0, false);
  Tensor keys = add_part(kKeys, 1, true);
  Tensor scale = add_number(kScale);

  const TensorSizes rows{spec_.batch, spec_.heads, spec_.queries, spec_.width};
  Tensor elements =
      add_tensor(next_virtual_++, CUDNN_DATA_FLOAT, rows, dense_strides(rows), TensorMemory::none);
  Tensor sums = row_values();
  Tensor products = add_row_values(kProducts, TensorMemory::gpu);
  pointwise(CUDNN_POINTWISE_MUL, output_gradient, &add_output(kOutput), elements);
  reduce(CUDNN_REDUCE_TENSOR_ADD, elements, sums);
  pointwise(CUDNN_POINTWISE_MUL, sums, &add_number(kOne), products);  // the place of dropout

  Tensor multiplied = scores();
  Tensor scaled = scores();
  Tensor distances = scores();
  multiply(queries, keys, multiplied);
  pointwise(CUDNN_POINTWISE_MUL, multiplied, &scale, scaled);
  pointwise(CUDNN_POINTWISE_SUB, scaled, &add_row_values(kDivisors, TensorMemory::gpu), distances);
  Tensor seen = masked(distances);
  Tensor weights = scores();
  pointwise(CUDNN_POINTWISE_EXP, seen, nullptr, weights);
  write_gradient(weights, output_gradient, kValueGradient, 2);

  Tensor slopes = scores();
  Tensor deviations = scores();
  Tensor weighted = scores();
  Tensor gradients = scores();
  multiply(output_gradient, add_part(kValues, 2, true), slopes);
  pointwise(CUDNN_POINTWISE_SUB, slopes, &products, deviations);
  pointwise(CUDNN_POINTWISE_MUL, deviations, &weights, weighted);
  pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, gradients);
  write_gradient(gradients, queries, kKeyGradient, 1);

  const std::int64_t stride = spec_.part(1).stride;
  Tensor key_rows = add_tensor(next_virtual_++, type_,
                               {spec_.batch, spec_.key_value_heads, spec_.keys, spec_.width},
                               {spec_.keys * stride, spec_.width, stride, 1}, TensorMemory::none);
  transpose(keys, key_rows);
  Tensor query_sums = add_tensor(kQuerySums, CUDNN_DATA_FLOAT, rows, dense_strides(rows));
  multiply(gradients, key_rows, query_sums);
  pointwise(CUDNN_POINTWISE_IDENTITY, query_sums, nullptr, add_part(kQueryGradient, 0, false));
}

void AttentionGraph::write_gradient(Tensor scores, Tensor rows, std::int64_t id,
                                    std::size_t which) {
  const TensorSizes sizes{spec_.batch, spec_.heads, spec_.queries, spec_.keys};
  Tensor turned = add_tensor(next_virtual_++, type_, exchanged(sizes),
                             exchanged(dense_strides(sizes)), TensorMemory::none);
  transpose(scores, turned);
  Tensor gradient = add_part(id, which, false);
  if (spec_.group() == 1) return multiply(turned, rows, gradient);
  const TensorSizes head_sizes{spec_.batch, spec_.heads, spec_.keys, spec_.width};
  Tensor all =
      add_tensor(next_virtual_++, type_, head_sizes, dense_strides(head_sizes), TensorMemory::none);
  multiply(turned, rows, all);
  reduce(CUDNN_REDUCE_TENSOR_ADD, all, gradient);
}

}  // namespace lockstep::inline v0::model::cuda
