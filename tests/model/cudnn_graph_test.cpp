// Graphs of convolutions and attention in cuDNN itself, without a GPU: whether it accepts the
// description, and whether it has engines for a GPU of given properties.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/layer/window.h"
#include "lockstep/model/layers/attention/attention_graph.h"
#include "lockstep/model/layers/attention/cudnn_attention.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/paths.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// The properties of an H200 in the format of cuDNN 9; another `capability` changes the engines.
std::string properties(int capability) {
  const int shared = capability < 900 ? 166912 : 232448;
  return fmt::format(
      R"({{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceVer": {}, )"
      R"("driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 150000000000, "multiProcessorCount": 132, )"
      R"("smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "regsPerBlock": 65536, "l2CacheSize": 52428800, )"
      R"("warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {}, )"
      R"("reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, )"
      R"("maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, )"
      R"("deviceName": "NVIDIA H200"}})",
      capability, shared);
}

constexpr std::array kTypes{Precision::float32, Precision::bfloat16, Precision::float16};

cudnnDataType_t type_of(Precision precision) {
  if (precision == Precision::float32) return CUDNN_DATA_FLOAT;
  return precision == Precision::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// Each kind of convolution in ResNet-50, of 32 images; the first layer first.
std::vector<Conv2DSpec> convolutions_of_resnet50() {
  const Network network = zoo::resnet50({224, 224, 3}, 1000);
  std::vector<Conv2DSpec> specs;
  std::set<std::string> known;
  for (const Node& node : network.nodes()) {
    const auto* convolution = dynamic_cast<const Conv2D*>(node.layer.get());
    if (convolution == nullptr) continue;
    const Conv2DSpec spec = convolution->spec({.name = node.name,
                                               .batch = 32,
                                               .inputs = {network.shape(node.inputs.front())},
                                               .output = node.output_shape,
                                               .training = true});
    if (known.insert(describe(spec)).second) specs.push_back(spec);
  }
  return specs;
}

// Unaligned channels, uneven zeros, groups.
std::vector<Conv2DSpec> odd_convolutions() {
  const auto spec = [](const Shape& input, std::int64_t filters, std::int64_t kernel,
                       std::int64_t strides, Padding padding, std::int64_t groups = 1) {
    return Conv2DSpec{.batch = 3,
                      .window = window_geometry(input, kernel, strides, padding),
                      .filters = filters,
                      .groups = groups};
  };
  return {spec({7, 5, 3}, 6, 3, 1, Padding::valid), spec({7, 5, 4}, 5, 4, 2, Padding::same),
          spec({7, 5, 4}, 6, 3, 2, Padding::symmetric, 2), spec({8, 7, 6}, 5, 3, 2, Padding::same),
          spec({12, 12, 1}, 32, 3, 1, Padding::valid)};
}

class CudnnGraph : public testing::Test {
 protected:
  // False if this cuDNN has another format of GPU properties.
  bool knows(int capability) {
    gpu_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string text = properties(capability);
    return cudnnBackendSetAttribute(gpu_->get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()),
                                    text.c_str()) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendFinalize(gpu_->get()) == CUDNN_STATUS_SUCCESS;
  }

  // Whether a configuration that cuDNN's rules propose for that GPU yields a plan with an allowed
  // workspace.
  bool has_plan(const ConvolutionGraph& graph, const EngineRequirements& required) {
    for (const GraphDescriptor& way : usable_configurations(graph.whole(), required, &*gpu_)) {
      GraphDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.refer_to(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *gpu_)
          .refer_to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way);
      if (!plan.try_to_finalize()) continue;
      std::int64_t bytes = 0;
      std::int64_t count = 0;
      check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &count, &bytes),
            "a workspace");
      if (static_cast<std::size_t>(bytes) <= kMaxWorkspace) return true;
    }
    return false;
  }

  void expect_plans_of_all_passes(const Conv2DSpec& spec, const ComputeOptions& options) {
    SCOPED_TRACE(fmt::format("{} in {}{}", describe(spec), to_string(options.precision),
                             options.deterministic ? ", deterministic" : ""));
    const auto expect_plan = [&](ConvolutionPass pass, bool adds) {
      Conv2DSpec one = spec;
      one.adds_input_gradient = adds;
      EXPECT_TRUE(has_plan({nullptr, type_of(options.precision), one, pass}, requirements(options)))
          << "pass " << static_cast<int>(pass) << (adds ? " that adds" : "");
    };
    expect_plan(ConvolutionPass::forward, false);
    expect_plan(ConvolutionPass::backward_filter, false);
    expect_plan(ConvolutionPass::backward_data, false);
    expect_plan(ConvolutionPass::backward_data, true);
  }

  std::optional<GraphDescriptor> gpu_;
};

TEST_F(CudnnGraph, HasEnginesForAllPassesOfResNet50) {
  if (!knows(900)) GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
  const std::vector<Conv2DSpec> specs = convolutions_of_resnet50();
  EXPECT_EQ(specs.size(), 23U);
  for (const Precision precision : kTypes)
    for (const Conv2DSpec& spec : specs) expect_plans_of_all_passes(spec, {.precision = precision});
}

TEST_F(CudnnGraph, HasEnginesForOddChannelsUnevenZerosAndGroups) {
  if (!knows(900)) GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
  for (const Precision precision : kTypes)
    for (const Conv2DSpec& spec : odd_convolutions()) {
      expect_plans_of_all_passes(spec, {.precision = precision});
      expect_plans_of_all_passes(spec, {.precision = precision, .deterministic = true});
    }
}

// Fewer engines remain without TF32; all of them are also valid with it.
TEST_F(CudnnGraph, ExcludesInexactAndNondeterministicEngines) {
  if (!knows(900)) GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
  const Conv2DSpec spec = convolutions_of_resnet50().at(1);
  const auto count = [&](ConvolutionPass pass, const ComputeOptions& options) {
    const ConvolutionGraph graph(nullptr, type_of(options.precision), spec, pass);
    return usable_configurations(graph.whole(), requirements(options), &*gpu_).size();
  };
  EXPECT_LT(count(ConvolutionPass::forward, {}), count(ConvolutionPass::forward, {.tf32 = true}));
  const ComputeOptions any{.precision = Precision::float16};
  const ComputeOptions same{.precision = Precision::float16, .deterministic = true};
  EXPECT_LT(count(ConvolutionPass::backward_filter, same),
            count(ConvolutionPass::backward_filter, any));
}

TEST_F(CudnnGraph, AcceptsTheDescriptionWithSums) {
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    for (const Conv2DSpec& spec : convolutions_of_resnet50())
      EXPECT_NO_THROW(ConvolutionGraph(nullptr, type, spec, ConvolutionPass::forward, true))
          << describe(spec);
}

TEST_F(CudnnGraph, HasEnginesWithSumsForFloat16) {
  std::vector<Conv2DSpec> specs = convolutions_of_resnet50();
  specs.erase(specs.begin());  // the first has none
  for (const int capability : {800, 900}) {
    if (!knows(capability))
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
    for (const Conv2DSpec& spec : specs)
      EXPECT_TRUE(has_plan({nullptr, CUDNN_DATA_HALF, spec, ConvolutionPass::forward, true}, {}))
          << capability << ' ' << describe(spec);
  }
}

// Engines that compile their kernels load the driver's library. CUDA's stub for linking suffices to
// choose an engine, but not to create a plan.
bool has_library_of_driver() {
  static void* const library = [] {
    void* const found = dlopen("libcuda.so.1", RTLD_NOW);
    return found != nullptr ? found : dlopen(LOCKSTEP_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL);
  }();
  return library != nullptr;
}

std::vector<AttentionSpec> attentions() {
  const AttentionSpec gpt{.batch = 8,
                          .queries = 1024,
                          .keys = 1024,
                          .heads = 12,
                          .key_value_heads = 12,
                          .width = 64,
                          .packed = true,
                          .causal = true,
                          .scale = 0.125f,
                          .training = true};
  AttentionSpec grouped = gpt;
  grouped.queries = grouped.keys = 1000;
  grouped.key_value_heads = 4;
  grouped.width = 128;
  AttentionSpec images = gpt;  // as in ViT
  images.queries = images.keys = 196;
  images.causal = false;
  AttentionSpec crossed = images;
  crossed.queries = 5;
  crossed.keys = 67;
  crossed.packed = false;
  crossed.key_value_heads = 1;
  crossed.width = 8;
  AttentionSpec single = gpt;
  single.batch = single.queries = single.keys = 1;
  return {gpt, grouped, images, crossed, single};
}

std::vector<AttentionPass> passes_of(const AttentionSpec& spec) {
  if (!spec.training) return {AttentionPass::forward};
  return {AttentionPass::forward, AttentionPass::backward};
}

TEST_F(CudnnGraph, AcceptsTheDescriptionOfAttention) {
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    for (const AttentionSpec& spec : attentions()) {
      const AttentionGraph forward(nullptr, type, spec, AttentionPass::forward);
      EXPECT_EQ(forward.ids().size(), spec.causal ? 7U : 6U);
      const AttentionGraph backward(nullptr, type, spec, AttentionPass::backward);
      EXPECT_EQ(backward.ids().size(), spec.causal ? 14U : 13U);
    }
}

TEST_F(CudnnGraph, HasEnginesForBothPassesOfAttention) {
  if (!has_library_of_driver()) GTEST_SKIP() << "neither a driver nor CUDA's stub of it";
  for (const int capability : {800, 900, 1000}) {
    if (!knows(capability))
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
    for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
      for (AttentionSpec spec : attentions())
        for (const bool training : {true, false}) {
          spec.training = training;
          for (const AttentionPass pass : passes_of(spec)) {
            const AttentionGraph graph(nullptr, type, spec, pass);
            EXPECT_FALSE(
                usable_configurations(graph.whole(), {.may_compile = true}, &*gpu_).empty())
                << capability << ", type " << type << ", " << spec.queries << " queries, "
                << (training ? "training, " : "inference, ")
                << (pass == AttentionPass::forward ? "forward" : "backward");
          }
        }
  }
}

// As reason_for_own_kernels() states without a query.
TEST_F(CudnnGraph, HasNoAttentionEngineForOddHeads) {
  if (!has_library_of_driver()) GTEST_SKIP() << "neither a driver nor CUDA's stub of it";
  if (!knows(900)) GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs otherwise";
  AttentionSpec spec = attentions().front();
  spec.width = 12;
  const AttentionGraph graph(nullptr, CUDNN_DATA_BFLOAT16, spec, AttentionPass::backward);
  EXPECT_TRUE(usable_configurations(graph.whole(), {.may_compile = true}, &*gpu_).empty());
}

TEST(OwnAttentionKernels, HaveAReason) {
  const AttentionSpec plain = attentions().front();
  const ComputeOptions bfloat16{.precision = Precision::bfloat16};
  EXPECT_EQ(reason_for_own_kernels(bfloat16, plain), "");
  EXPECT_EQ(reason_for_own_kernels({.precision = Precision::float16}, plain), "");
  EXPECT_EQ(reason_for_own_kernels({}, plain), "it is in float32");
  EXPECT_EQ(
      reason_for_own_kernels({.precision = Precision::bfloat16, .deterministic = true}, plain),
      "--deterministic requires the same bits in every run");
  const auto reason = [&](auto change) {
    AttentionSpec spec = plain;
    change(spec);
    return reason_for_own_kernels(bfloat16, spec);
  };
  EXPECT_EQ(reason([](AttentionSpec& spec) { spec.segments = true; }), "it has segments");
  EXPECT_EQ(reason([](AttentionSpec& spec) { spec.rotary = 10000; }),
            "it rotates queries and keys");
  for (const std::int64_t width : {12, 136})
    EXPECT_EQ(reason([&](AttentionSpec& spec) { spec.width = width; }),
              "cuDNN needs heads of up to 128 elements, a multiple of 8");
}

}  // namespace
}  // namespace lockstep::inline v0::model::cuda
