// Networks of random layers: recomputation, logits in blocks, and both together do not change
// results. They have forks, aliases, layers that work in place, several outputs, frozen parameters
// and micro-batches of several sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAreArray;

constexpr std::int64_t kRandomPositions = 6;
constexpr std::int64_t kRandomElements = 8;
constexpr std::int32_t kClasses = 9;
constexpr std::size_t kWholeLogits = std::size_t{1} << 40;
constexpr std::size_t kFewLogits = 1;

// Adds random layers from [kRandomPositions, kRandomElements] to the same shape.
class RandomNetwork {
 public:
  explicit RandomNetwork(unsigned seed) : random_(seed) {
    arrays_.push_back(
        network_.add(Embedding({.vocabulary = kClasses, .dimension = kRandomElements}),
                     {network_.input("words")}, "table"));
    const unsigned layers = 12 + below(40);
    for (unsigned i = 0; i < layers; ++i) arrays_.push_back(add_layer());
    // Always reads the segments.
    const NodeId packed = network_.add(Dense({.units = 3 * kRandomElements}), {arrays_.back()});
    arrays_.push_back(network_.add(Attention({.heads = 2}), {packed, network_.input("segments")}));
    std::vector<NodeId> outputs = {
        network_.add(TiedDense({.to = "table", .use_bias = true}), {arrays_.back()})};
    for (unsigned more = below(3); more > 0; --more)
      outputs.push_back(network_.add(Dense({.units = kClasses}), {any()}));
    for (std::size_t k = 0; k < outputs.size(); ++k)
      network_.output("output" + std::to_string(k), outputs[k]);
    std::vector<std::string> frozen;
    for (const ParameterInfo& parameter : network_.parameters().entries())
      if (seed % 3 == 0 && below(3) == 0 && !parameter.name.starts_with("table"))
        frozen.push_back(parameter.name);
    network_.freeze(frozen);
  }
  const Network& network() const { return network_; }

 private:
  unsigned below(std::size_t count) {
    return static_cast<unsigned>(random_() % static_cast<unsigned>(count));
  }
  // Most often the last array, so that networks are deep.
  NodeId any() { return below(3) > 0 ? arrays_.back() : arrays_[below(arrays_.size())]; }

  NodeId add_layer() {
    const NodeId x = any();
    switch (below(14)) {
      case 0:
        return network_.add(ReLU(), {x});
      case 1:
        return network_.add(Dropout({.rate = 0.3F}), {x});
      case 2:
        return network_.add(LayerNormalization(), {x});
      case 3:
        return network_.add(GELU(), {x});
      case 4:
        return network_.add(Sigmoid(), {x});
      case 5:
      case 6:
        return network_.add(Add(), {x, any()});
      case 7:
        return network_.add(Multiply(), {x, any()});
      case 8:
        return network_.add(AdditiveAttention(), {x, any(), any(), network_.input("segments")});
      case 9: {
        const NodeId flat = network_.add(Flatten(), {any()});
        const NodeId state = network_.add(Dense({.units = kRandomElements}), {flat});
        return network_.add(GRU({.units = kRandomElements,
                                 .return_sequences = true,
                                 .segments = true,
                                 .initial_state = true}),
                            {x, state, network_.input("segments")});
      }
      case 10: {
        network_.add(Reshape({.shape = {kRandomElements, kRandomPositions}}), {x});
        network_.add(ReLU());
        return network_.add(Reshape({.shape = {kRandomPositions, kRandomElements}}));
      }
      case 11: {
        network_.add(Reshape({.shape = {kRandomPositions, 1, kRandomElements}}), {x});
        network_.add(BatchNormalization());
        return network_.add(Reshape({.shape = {kRandomPositions, kRandomElements}}));
      }
      default:
        return network_.add(Dense({.units = kRandomElements}), {x});
    }
  }

  std::mt19937 random_;
  Network network_{{{.name = "words", .shape = {kRandomPositions}, .type = ElementType::int32},
                    {.name = "segments", .shape = {kRandomPositions}, .type = ElementType::int32}}};
  std::vector<NodeId> arrays_;
};

struct TrainedOnce {
  std::vector<float> gradients;
  std::vector<float> buffers;
  std::vector<double> losses;
  std::size_t activation_bytes = 0;
};

// A step of micro-batches of 3, 2 and 13 samples. No loss reads the third output.
TrainedOnce train_once(const Network& network, const ComputeOptions& options) {
  set_thread_budget(1);
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator,
                      options);
  model.initialize(3);
  std::vector<LossTerm> terms(std::min<std::size_t>(network.outputs().size(), 2));
  for (std::size_t k = 0; k < terms.size(); ++k) terms[k].output = k;
  const TotalLoss loss(terms);
  TrainedOnce result;
  std::int64_t first = 0;
  for (const std::int64_t samples : {3, 2, 13}) {
    const auto rows = static_cast<std::size_t>(samples * kRandomPositions);
    const std::vector<std::int32_t> words = labels(rows, kClasses, 1);
    const std::vector<std::int32_t> segments = labels(rows, 3, 2);
    const std::vector<std::int32_t> classes = labels(rows, kClasses, 3);
    const std::vector<InputView> inputs = {{.indices = words}, {.indices = segments}};
    const std::vector<Targets> more(terms.size() - 1, {.labels = classes, .values = {}});
    const BatchView batch{.samples = samples,
                          .targets = {.labels = classes, .values = {}},
                          .more_targets = more,
                          .inputs = inputs};
    const StepContext step{.seed = 7, .first_sample = first, .global_samples = 18};
    result.losses.push_back(model.train_batch(batch, step, loss, first > 0).loss_sum);
    first += samples;
  }
  result.gradients.assign(model.gradients().begin(), model.gradients().end());
  result.buffers.assign(model.buffers().begin(), model.buffers().end());
  result.activation_bytes = model.memory().activations;
  return result;
}

TEST(RandomNetworks, HaveTheSameGradientsForAllPlans) {
  constexpr unsigned kNetworks = 24;
  std::size_t in_less_memory = 0;
  for (unsigned seed = 0; seed < kNetworks; ++seed) {
    SCOPED_TRACE(seed);
    const RandomNetwork made(seed);
    const TrainedOnce whole = train_once(made.network(), {.logits_bytes = kWholeLogits});
    const TrainedOnce rows = train_once(made.network(), {.logits_bytes = kFewLogits});
    EXPECT_LE(error(rows.gradients, whole.gradients), 1e-4);
    for (const auto& [kept, bytes] : {std::pair(&whole, kWholeLogits), {&rows, kFewLogits}}) {
      const TrainedOnce recomputed =
          train_once(made.network(), {.recompute = Recompute::blocks, .logits_bytes = bytes});
      EXPECT_TRUE(std::ranges::equal(recomputed.gradients, kept->gradients)) << bytes;
      EXPECT_TRUE(std::ranges::equal(recomputed.buffers, kept->buffers)) << bytes;
      EXPECT_THAT(recomputed.losses, ElementsAreArray(kept->losses));
      in_less_memory += recomputed.activation_bytes < kept->activation_bytes ? 1 : 0;
    }
  }
  EXPECT_GT(in_less_memory, kNetworks) << "more than half of them recompute layers";
}

}  // namespace
}  // namespace lockstep::inline v0::model
