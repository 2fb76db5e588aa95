// Attributes of descriptors of the graph API, and what is wrong with them.
#include "tests/support/pretend_cuda/cudnn_graph_descriptors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/support/pretend_cuda/cudnn_descriptors.h"
#include "tests/support/pretend_cuda/machine.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::GraphDescriptor;
using pretend::refuse;

struct Descriptors {
  std::mutex mutex;
  std::map<cudnnBackendDescriptor_t, std::shared_ptr<GraphDescriptor>> all;
};

Descriptors& descriptors() {
  static Descriptors descriptors;
  return descriptors;
}

// The type of an attribute, and its descriptors.
struct Known {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeType_t type;
};

const std::map<cudnnBackendAttributeName_t, Known>& known_attributes() {
  constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  constexpr auto kWindow = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
  constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  constexpr auto kSums = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
  constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
  constexpr auto kOther = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static const std::map<cudnnBackendAttributeName_t, Known> known{
      {CUDNN_ATTR_TENSOR_UNIQUE_ID, {kTensor, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_TENSOR_DATA_TYPE, {kTensor, CUDNN_TYPE_DATA_TYPE}},
      {CUDNN_ATTR_TENSOR_DIMENSIONS, {kTensor, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_TENSOR_STRIDES, {kTensor, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {kTensor, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {kWindow, CUDNN_TYPE_DATA_TYPE}},
      {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {kWindow, CUDNN_TYPE_CONVOLUTION_MODE}},
      {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {kWindow, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {kWindow, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {kWindow, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {kWindow, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, {kWindow, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, {kForward, kOther}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, {kForward, kOther}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, {kForward, kOther}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, {kForward, kOther}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, {kForward, CUDNN_TYPE_FLOAT}},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, {kForward, CUDNN_TYPE_FLOAT}},
      {CUDNN_ATTR_OPERATION_GENSTATS_MODE, {kSums, CUDNN_TYPE_GENSTATS_MODE}},
      {CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, {kSums, CUDNN_TYPE_DATA_TYPE}},
      {CUDNN_ATTR_OPERATION_GENSTATS_XDESC, {kSums, kOther}},
      {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, {kSums, kOther}},
      {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, {kSums, kOther}},
      {CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
       {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_HANDLE}},
      {CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, kOther}},
      {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, kOther}},
      {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_HEUR_MODE}},
      {CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
       {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_HANDLE}},
      {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, kOther}},
      {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kPack, CUDNN_TYPE_INT64}},
      {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {kPack, CUDNN_TYPE_VOID_PTR}},
      {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {kPack, CUDNN_TYPE_VOID_PTR}},
  };
  return known;
}

std::size_t width_of(cudnnBackendAttributeType_t type) {
  const bool is_wide = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ||
                       type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  return is_wide ? 8 : 4;
}

// Checks that all attributes for finalize() are set.
bool is_complete(const GraphDescriptor& descriptor) {
  return std::ranges::all_of(known_attributes(), [&](const auto& known) {
    return known.second.of != descriptor.type || descriptor.attributes.contains(known.first);
  });
}

}  // namespace

std::shared_ptr<GraphDescriptor> pretend::graph_descriptor(cudnnBackendDescriptor_t handle) {
  const std::lock_guard lock(descriptors().mutex);
  const auto found = descriptors().all.find(handle);
  if (found == descriptors().all.end()) usage_error("cuDNN was given a descriptor that is gone");
  return found->second;
}

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* handle) {
  auto descriptor = std::make_shared<GraphDescriptor>();
  descriptor->type = type;
  *handle = descriptor.get();
  const std::lock_guard lock(descriptors().mutex);
  descriptors().all[*handle] = std::move(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  pretend::graph_descriptor(handle);
  const std::lock_guard lock(descriptors().mutex);
  descriptors().all.erase(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  const auto descriptor = pretend::graph_descriptor(handle);
  if (descriptor->is_final)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "a descriptor that is finalized already");
  const auto known = known_attributes().find(name);
  if (known == known_attributes().end() || known->second.of != descriptor->type)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("attribute {} of this descriptor", static_cast<int>(name)));
  if (known->second.type != type || count < 1 || values == nullptr)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("attribute {} of another type", static_cast<int>(name)));
  GraphDescriptor::Attribute attribute{.type = type, .count = count, .bytes = {}, .others = {}};
  const std::size_t bytes = width_of(type) * static_cast<std::size_t>(count);
  attribute.bytes.resize(bytes);
  std::memcpy(attribute.bytes.data(), values, bytes);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto other =
          pretend::graph_descriptor(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
      if (!other->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is not finalized");
      attribute.others.push_back(other);
    }
  descriptor->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  const auto descriptor = pretend::graph_descriptor(handle);
  if (descriptor->is_final)
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is finalized already");
  if (!is_complete(*descriptor))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor with attributes missing");
  const cudnnStatus_t status = pretend::finalize(*descriptor);
  descriptor->is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

}  // extern "C"
