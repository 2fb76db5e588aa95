// mobilenet_v2 with the weights and images of PyTorch's has its outputs, loss and gradients.
// scripts/make_reference wrote them; weights and images are hashes, which both sides compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/hashed.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::int64_t kImages = 2;
constexpr std::uint32_t kSeed = 110077;  // SEED of scripts/make_reference_mobilenet.py

// PyTorch cannot reproduce the masks of dropout.
Network without_dropout(const Network& network) {
  nlohmann::json description = network_to_json(network).value();
  for (nlohmann::json& layer : description.at("layers"))
    if (layer.at("type") == "dropout") layer["rate"] = 0;
  return network_from_json(description.dump(), "mobilenet_v2");
}

// All arrays of a model in the order of their names.
std::map<std::string, std::pair<const ParameterInfo*, std::span<float>>> arrays_of(
    CompiledModel& model) {
  std::map<std::string, std::pair<const ParameterInfo*, std::span<float>>> arrays;
  for (const auto& [table, flat] : {std::pair(&model.parameter_table(), model.parameters()),
                                    std::pair(&model.buffer_table(), model.buffers())})
    for (const ParameterInfo& entry : table->entries())
      arrays[entry.name] = {&entry, ParameterTable::slice(flat, entry)};
  return arrays;
}

TEST(MobileNetV2Reference, HasTheOutputsTheLossAndTheGradientsOfPyTorch) {
  const ReferenceFile reference("layers");
  const auto expected = [&](const std::string& name) {
    return reference.array("mobilenet_v2/" + name).values;
  };
  set_thread_budget(1);
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(
                          without_dropout(zoo::mobilenet_v2({32, 32, 3}, 10, {.width = 0.25}))),
                      device::Device{}, allocator);
  std::uint32_t seed = kSeed;
  for (const auto& [name, array] : arrays_of(model))
    fill_hashed(*array.first, seed++, array.second);
  model.parameters_changed();
  std::vector<float> images(kImages * 32 * 32 * 3);
  for (std::uint32_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(hashed(i, kSeed + 1000));
  const BatchView batch{.samples = kImages,
                        .features = images,
                        .targets = {.labels = reference.integers("mobilenet_v2/labels")}};

  const std::span<const float> logits = model.predict_batch(batch);
  EXPECT_THAT(logits, Pointwise(FloatNear(1e-4f), expected("inference_logits")));
  const StepContext step{.global_samples = kImages};
  const double loss = model.train_batch(batch, step, SparseCategoricalCrossentropy{}).loss();
  EXPECT_NEAR(loss, expected("loss")[0], 1e-4);

  const std::vector<float> norms = expected("gradient_norms");
  const std::vector<float> products = expected("gradient_products");
  std::map<std::string, const ParameterInfo*> parameters;
  for (const ParameterInfo& entry : model.parameter_table().entries())
    parameters[entry.name] = &entry;
  ASSERT_EQ(parameters.size(), norms.size());
  std::size_t k = 0;
  for (const auto& [name, entry] : parameters) {
    double squares = 0;
    double product = 0;
    std::uint32_t i = 0;
    for (const float value : ParameterTable::slice(model.gradients(), *entry)) {
      const auto gradient = static_cast<double>(value);
      squares += gradient * gradient;
      product += gradient * hashed(i++, 2000 + static_cast<std::uint32_t>(k));
    }
    const auto norm = static_cast<double>(norms[k]);
    // Some are 0, such as that of a beta that the next normalization subtracts.
    const double tolerance = 1e-3 * norm + 2e-5;
    EXPECT_NEAR(std::sqrt(squares), norm, tolerance) << name;
    EXPECT_NEAR(product, products[k], tolerance) << name;
    ++k;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
