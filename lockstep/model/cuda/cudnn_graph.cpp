#include "lockstep/model/cuda/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace lockstep::inline v0::model::cuda {
namespace {

constexpr std::int64_t kTensorAlignment = 16;

cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  check(cudnnBackendCreateDescriptor(type, &handle),
        fmt::format("descriptor {} of the graph API", static_cast<int>(type)));
  return handle;
}

// Not a usage error: the described operation is not supported, or its kernels could not be built.
bool is_unsupported(cudnnStatus_t status) {
  const auto category = CUDNN_STATUS_CATEGORY(static_cast<int>(status));
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_INTERNAL_ERROR;
}

}  // namespace

GraphDescriptor::GraphDescriptor(cudnnBackendDescriptorType_t type) : handle_(create(type)) {}

GraphDescriptor& GraphDescriptor::set(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, std::size_t count,
                                      const void* values) {
  check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(count), values),
        fmt::format("attribute {} of the graph API", static_cast<int>(name)));
  return *this;
}

GraphDescriptor& GraphDescriptor::refer_to(cudnnBackendAttributeName_t name,
                                           const GraphDescriptor& other) {
  const std::array one{&other};
  return refer_to(name, one);
}

GraphDescriptor& GraphDescriptor::refer_to(cudnnBackendAttributeName_t name,
                                           std::span<const GraphDescriptor* const> others) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const GraphDescriptor* other : others) handles.push_back(other->get());
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data());
}

GraphDescriptor& GraphDescriptor::finalize() {
  check(cudnnBackendFinalize(get()), "a descriptor of the graph API");
  return *this;
}

bool GraphDescriptor::try_to_finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  if (is_unsupported(status)) return false;
  check(status, "a descriptor of the graph API");
  return true;
}

GraphDescriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes,
                                bool is_virtual) {
  const auto [n, c, h, w] = sizes;
  return describe_tensor(id, type, sizes, {h * w * c, 1, w * c, c},
                         is_virtual ? TensorMemory::none : TensorMemory::gpu);
}

GraphDescriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes,
                                const TensorSizes& strides, TensorMemory memory) {
  GraphDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set_all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set_all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  if (memory == TensorMemory::none) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (memory == TensorMemory::host) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  tensor.finalize();
  return tensor;
}

namespace {

std::vector<GraphDescriptor> engine_configurations(const GraphDescriptor& graph,
                                                   cudnnBackendHeurMode_t mode,
                                                   const GraphDescriptor* gpu) {
  GraphDescriptor rules(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  rules.refer_to(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (gpu != nullptr) rules.refer_to(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *gpu);
  if (!rules.try_to_finalize()) return {};
  constexpr std::string_view kWhat = "the engine configurations of a graph of operations";
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(rules.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        kWhat);
  std::vector<GraphDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i)
    handles.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  check(cudnnBackendGetAttribute(rules.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, handles.data()),
        kWhat);
  configurations.erase(
      configurations.begin() + std::min<std::ptrdiff_t>(count, std::ssize(configurations)),
      configurations.end());
  return configurations;
}

GraphDescriptor engine_of(const GraphDescriptor& configuration) {
  GraphDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
        "the engine of a configuration");
  return engine;
}

// Whether one of the notes on `engine` is among `unwanted`.
template <typename Note, std::size_t kNotes>
bool has_note(const GraphDescriptor& engine, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, std::initializer_list<Note> unwanted) {
  std::array<Note, kNotes> notes{};
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.get(), name, type, std::ssize(notes), &count, notes.data()),
        "the notes on an engine");
  const auto written = std::span(notes).first(static_cast<std::size_t>(count));
  return std::ranges::find_first_of(written, unwanted) != written.end();
}

bool has_numerical_note(const GraphDescriptor& engine,
                        std::initializer_list<cudnnBackendNumericalNote_t> unwanted) {
  return has_note<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, unwanted);
}

bool is_usable(const GraphDescriptor& configuration, const EngineRequirements& required) {
  const GraphDescriptor engine = engine_of(configuration);
  if (!required.may_compile &&
      has_note<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT>(
          engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
          {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}))
    return false;
  if (required.exact && has_numerical_note(engine, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                    CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}))
    return false;
  return !required.deterministic ||
         !has_numerical_note(engine, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
}

}  // namespace

EngineRequirements requirements(const ComputeOptions& options) {
  return {.exact = options.precision == Precision::float32 && !options.tf32,
          .deterministic = options.deterministic};
}

std::vector<GraphDescriptor> usable_configurations(const GraphDescriptor& graph,
                                                   const EngineRequirements& required,
                                                   const GraphDescriptor* gpu) {
  std::vector<GraphDescriptor> usable;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (GraphDescriptor& one : engine_configurations(graph, mode, gpu))
      if (is_usable(one, required)) usable.push_back(std::move(one));
  return usable;
}

std::optional<GraphPlan> GraphPlan::create(cudnnHandle_t handle,
                                           const GraphDescriptor& configuration) {
  GraphDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
      .refer_to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (!plan.try_to_finalize()) return std::nullopt;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &bytes),
        "the workspace of a graph of operations");
  return GraphPlan(std::make_shared<const GraphDescriptor>(std::move(plan)),
                   static_cast<std::size_t>(bytes));
}

void GraphPlan::run(cudnnHandle_t handle, std::span<const std::int64_t> ids,
                    std::span<void* const> memory, void* workspace) {
  if (!pack_ || workspace != workspace_ || !std::ranges::equal(memory, memory_)) {
    // A finalized descriptor cannot be changed.
    pack_.emplace(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack_->set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(memory))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finalize();
    memory_.assign(memory.begin(), memory.end());
    workspace_ = workspace;
  }
  check(cudnnBackendExecute(handle, plan_->get(), pack_->get()), "a graph of operations");
}

}  // namespace lockstep::inline v0::model::cuda
