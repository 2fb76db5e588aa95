// The graph API of the simulated cuDNN. It supports one kind of graph, a convolution with sums of
// its output's channels (ConvBNfprop in cuDNN's guide), with three engines: one that is proposed
// and fails, one without a workspace, one with a workspace. Types of 16 bits, including bfloat16,
// although the guide lists only float16.
#include "tests/support/pretend_cuda/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "tests/support/pretend_cuda/cudnn_descriptors.h"
#include "tests/support/pretend_cuda/cudnn_graph_descriptors.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::GraphDescriptor;
using pretend::refuse;
using pretend::Shape;
using pretend::SummedConvolution;

constexpr std::size_t kAlignment = 16;
constexpr int kIdle = 0;       // does not work
constexpr int kPlain = 1;      // has no workspace
constexpr int kWithSpace = 2;  // fills it

std::atomic<std::uint64_t> runs{0};
std::atomic<std::uint64_t> plans{0};

template <typename T>
std::vector<T> values_of(const GraphDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  const auto& attribute = descriptor.attributes.at(name);
  std::vector<T> values(static_cast<std::size_t>(attribute.count));
  std::memcpy(values.data(), attribute.bytes.data(), values.size() * sizeof(T));
  return values;
}
template <typename T>
T value_of(const GraphDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  return values_of<T>(descriptor, name).front();
}

std::vector<std::shared_ptr<const GraphDescriptor>> others_of(const GraphDescriptor& descriptor,
                                                              cudnnBackendAttributeName_t name) {
  std::vector<std::shared_ptr<const GraphDescriptor>> others;
  for (const auto& other : descriptor.attributes.at(name).others) {
    others.push_back(other.lock());
    if (!others.back()) pretend::usage_error("a descriptor of cuDNN's refers to one that is gone");
  }
  return others;
}
std::shared_ptr<const GraphDescriptor> other_of(const GraphDescriptor& descriptor,
                                                cudnnBackendAttributeName_t name) {
  return others_of(descriptor, name).front();
}

struct Tensor {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Shape shape{};
  bool has_channels_last = false;

  explicit Tensor(const GraphDescriptor& descriptor)
      : id(value_of<std::int64_t>(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        type(value_of<cudnnDataType_t>(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    const auto sizes = values_of<std::int64_t>(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    if (sizes.size() != 4) return;
    const auto [n, c, h, w] = std::array{sizes[0], sizes[1], sizes[2], sizes[3]};
    shape = {.n = n, .c = c, .h = h, .w = w};
    has_channels_last = values_of<std::int64_t>(descriptor, CUDNN_ATTR_TENSOR_STRIDES) ==
                        std::vector{h * w * c, std::int64_t{1}, w * c, c};
  }
  std::size_t bytes() const { return shape.count() * (type == CUDNN_DATA_FLOAT ? 4 : 2); }
  SummedConvolution::Array array() const { return {id, bytes()}; }
};

bool is_image(const GraphDescriptor& descriptor) {
  const auto sizes = values_of<std::int64_t>(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = values_of<std::int64_t>(descriptor, CUDNN_ATTR_TENSOR_STRIDES);
  return sizes.size() == strides.size() &&
         std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
}

pretend::Steps steps_of(const GraphDescriptor& window) {
  const auto pads = values_of<std::int64_t>(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto steps = values_of<std::int64_t>(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilations = values_of<std::int64_t>(window, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  return {.pad_h = pads.at(0),
          .pad_w = pads.at(1),
          .h = steps.at(0),
          .w = steps.at(1),
          .dilation_h = dilations.at(0),
          .dilation_w = dilations.at(1)};
}

bool is_window(const GraphDescriptor& window) {
  constexpr std::array kPairs{
      CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
      CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_DILATIONS};
  return value_of<std::int64_t>(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
         std::ranges::all_of(kPairs,
                             [&](auto name) { return window.attributes.at(name).count == 2; });
}

cudnnStatus_t finalize_graph(GraphDescriptor& descriptor) {
  const auto operations = others_of(descriptor, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations.size() != 2 ||
      operations[0]->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
      operations[1]->type != CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a graph other than a convolution and its sums");
  const GraphDescriptor& forward = *operations[0];
  const GraphDescriptor& sums = *operations[1];
  const Tensor x(*other_of(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
  const Tensor filter(*other_of(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
  const Tensor y(*other_of(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
  const Tensor summed(*other_of(sums, CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
  const Tensor first(*other_of(sums, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC));
  const Tensor second(*other_of(sums, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC));
  const auto window = other_of(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
  const pretend::Steps steps = steps_of(*window);
  if (summed.id != y.id)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "sums of something else than the convolution");
  if (x.shape.c != filter.shape.c || y.shape != pretend::output_shape(x.shape, filter.shape, steps))
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a convolution whose arrays do not fit");
  const Shape channels{.n = 1, .c = y.shape.c, .h = 1, .w = 1};
  if (first.shape != channels || second.shape != channels)
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sums of other than [1, channels, 1, 1]");
  descriptor.graph = {.type = x.type == CUDNN_DATA_HALF ? CUDA_R_16F : CUDA_R_16BF,
                      .problem = {x.shape, filter.shape, y.shape, steps},
                      .x = x.array(),
                      .filter = filter.array(),
                      .y = y.array(),
                      .sums = first.array(),
                      .squares = second.array()};
  // Unsupported graphs fail only when engines are requested.
  const bool is_known =
      (x.type == CUDNN_DATA_HALF || x.type == CUDNN_DATA_BFLOAT16) && filter.type == x.type &&
      y.type == x.type && first.type == CUDNN_DATA_FLOAT && second.type == CUDNN_DATA_FLOAT &&
      x.has_channels_last && filter.has_channels_last && y.has_channels_last &&
      value_of<cudnnDataType_t>(*window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
      value_of<cudnnDataType_t>(sums, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC) ==
          CUDNN_DATA_FLOAT &&
      value_of<float>(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA) == 1 &&
      value_of<float>(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA) == 0;
  descriptor.engine = is_known ? kPlain : kIdle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_rules(GraphDescriptor& descriptor) {
  const auto graph = other_of(descriptor, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (!pretend::machine().sums_convolutions || graph->engine == kIdle)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine for this graph");
  descriptor.graph = graph->graph;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(GraphDescriptor& descriptor) {
  ++plans;
  const auto configuration = other_of(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (configuration->engine == kIdle)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an engine that was proposed and does not work");
  descriptor.graph = configuration->graph;
  descriptor.engine = configuration->engine;
  descriptor.workspace_bytes =
      descriptor.engine == kPlain ? 0 : 1024 + 4 * descriptor.graph->problem.filter.count();
  return CUDNN_STATUS_SUCCESS;
}

std::vector<int> engines_of(const GraphDescriptor& rules) {
  const auto mode = value_of<cudnnBackendHeurMode_t>(rules, CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {kWithSpace};
  std::vector<int> engines(static_cast<std::size_t>(pretend::machine().idle_engines), kIdle);
  engines.insert(engines.end(), {kPlain, kWithSpace});
  return engines;
}

cudnnStatus_t give_engine(const GraphDescriptor& configuration, std::int64_t* count,
                          const cudnnBackendDescriptor_t* handle) {
  const auto engine = pretend::graph_descriptor(*handle);
  if (engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || engine->is_final)
    return refuse(CUDNN_STATUS_BAD_PARAM, "no place for an engine");
  engine->engine = configuration.engine;
  engine->is_final = true;
  *count = 1;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_notes(const GraphDescriptor& engine, std::int64_t* count,
                         cudnnBackendBehaviorNote_t* notes) {
  *notes++ = CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API;
  *count = 1;
  if (!pretend::machine().compiles_at_run_time || engine.engine != kWithSpace)
    return CUDNN_STATUS_SUCCESS;
  *notes = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  ++*count;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_configurations(const GraphDescriptor& rules, std::int64_t most,
                                  std::int64_t* count, const cudnnBackendDescriptor_t* handles) {
  const auto engines = engines_of(rules);
  // Like the library, it first reports more engines than it returns.
  *count = most == 0 ? std::ssize(engines) + 2 : std::min(most, std::ssize(engines));
  for (std::int64_t i = 0; i < std::min(most, std::ssize(engines)); ++i) {
    const auto configuration = pretend::graph_descriptor(handles[i]);
    if (configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || configuration->is_final)
      return refuse(CUDNN_STATUS_BAD_PARAM, "no place for a configuration");
    configuration->graph = rules.graph;
    configuration->engine = engines[static_cast<std::size_t>(i)];
    configuration->is_final = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

// The arrays of a graph at the addresses in a variant pack.
struct Memory {
  const void* x = nullptr;
  const void* filter = nullptr;
  void* y = nullptr;
  float* sums = nullptr;
  float* squares = nullptr;
  void* workspace = nullptr;
};

cudnnStatus_t find(const GraphDescriptor& pack, const SummedConvolution::Array& array,
                   void*& found) {
  const auto ids = values_of<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = values_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const auto place = std::ranges::find(ids, array.id);
  if (place == ids.end() || ids.size() != pointers.size())
    return refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("no address of tensor {}", array.id));
  found = pointers[static_cast<std::size_t>(place - ids.begin())];
  if (found == nullptr || !pretend::is_aligned(found, kAlignment))
    return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                  fmt::format("an address of tensor {}", array.id));
  pretend::check_is_on_gpu("cuDNN", found, array.bytes);
  return CUDNN_STATUS_SUCCESS;
}

void compute(const SummedConvolution& graph, const Memory& at) {
  const auto y =
      pretend::convolve(graph.problem, pretend::load_all(graph.type, at.x, graph.problem.x.count()),
                        pretend::load_all(graph.type, at.filter, graph.problem.filter.count()));
  const auto channels = static_cast<std::size_t>(graph.problem.y.c);
  std::fill_n(at.sums, channels, 0.0F);
  std::fill_n(at.squares, channels, 0.0F);
  for (std::size_t i = 0; i < y.size(); ++i) {
    pretend::store(graph.type, at.y, static_cast<std::ptrdiff_t>(i), y[i]);
    at.sums[i % channels] += y[i];
    at.squares[i % channels] += y[i] * y[i];
  }
  ++runs;
}

}  // namespace

std::uint64_t pretend::graph_runs() { return runs; }
std::uint64_t pretend::graph_plans() { return plans; }

cudnnStatus_t pretend::finalize(GraphDescriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return is_image(descriptor) ? CUDNN_STATUS_SUCCESS
                                  : refuse(CUDNN_STATUS_BAD_PARAM, "an impossible tensor");
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return is_window(descriptor) ? CUDNN_STATUS_SUCCESS
                                   : refuse(CUDNN_STATUS_NOT_SUPPORTED,
                                            "a convolution over other than two dimensions");
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return finalize_graph(descriptor);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return finalize_rules(descriptor);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return finalize_plan(descriptor);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return CUDNN_STATUS_SUCCESS;
    default:
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor that nobody asks for here");
  }
}

extern "C" {

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* values) {
  const auto descriptor = pretend::graph_descriptor(handle);
  if (!descriptor->is_final)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is not finalized");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
      descriptor->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    return give_configurations(*descriptor, requested, count,
                               static_cast<const cudnnBackendDescriptor_t*>(values));
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
      requested == 1 && descriptor->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
    return give_engine(*descriptor, count, static_cast<const cudnnBackendDescriptor_t*>(values));
  if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && type == CUDNN_TYPE_BEHAVIOR_NOTE &&
      requested == CUDNN_BEHAVIOR_NOTE_TYPE_COUNT &&
      descriptor->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    return give_notes(*descriptor, count, static_cast<cudnnBackendBehaviorNote_t*>(values));
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 &&
      requested == 1 && descriptor->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    *count = 1;
    *static_cast<int64_t*>(values) = static_cast<int64_t>(descriptor->workspace_bytes);
    return CUDNN_STATUS_SUCCESS;
  }
  return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that nobody asks for here");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle) {
  const auto plan = pretend::graph_descriptor(plan_handle);
  const auto pack = pretend::graph_descriptor(pack_handle);
  if (handle == nullptr || !plan->is_final || !pack->is_final ||
      plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(CUDNN_STATUS_BAD_PARAM, "something else than a plan and addresses");
  const SummedConvolution& graph = *plan->graph;
  std::array<void*, 5> found{};
  const std::array arrays{&graph.x, &graph.filter, &graph.y, &graph.sums, &graph.squares};
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (const cudnnStatus_t status = find(*pack, *arrays[i], found[i]);
        status != CUDNN_STATUS_SUCCESS)
      return status;
  const Memory at{.x = found[0],
                  .filter = found[1],
                  .y = found[2],
                  .sums = static_cast<float*>(found[3]),
                  .squares = static_cast<float*>(found[4]),
                  .workspace = value_of<void*>(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)};
  const std::size_t space = plan->workspace_bytes;
  if (space > 0) {
    if (at.workspace == nullptr || !pretend::is_aligned(at.workspace, kAlignment))
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    "a workspace that is missing or not aligned");
    pretend::check_is_on_gpu("cuDNN", at.workspace, space);
  }
  const cudaError_t status = pretend::enqueue(handle->stream, [graph, at, space] {
    if (space > 0) std::memset(at.workspace, 0xff, space);
    compute(graph, at);
  });
  return status == cudaSuccess ? CUDNN_STATUS_SUCCESS
                               : refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(status));
}

}  // extern "C"
