// The model that a checkpoint or a data set determines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/model_source.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ModelOfCheckpoint, IsReadFromLibraryCheckpoint) {
  const auto stored = nlohmann::json::parse(R"({
    "description": {"input": [4], "layers": [{"type": "dense", "name": "out", "units": 3}]},
    "loss": "sparse-categorical-crossentropy",
    "label_smoothing": 0.25})");
  for (const char* of_program : {R"("anything")", R"({"images": "none"})"}) {
    const nlohmann::json configuration = {{"model", nlohmann::json::parse(of_program)},
                                          {"network", stored}};
    const ModelSource source = ModelSource::of_configuration(configuration, "state.json");
    EXPECT_EQ(source.input_shape, model::Shape({4}));
    EXPECT_EQ(source.outputs, 3);
    EXPECT_EQ(std::get<model::SparseCategoricalCrossentropy>(source.loss).label_smoothing, 0.25F);
    EXPECT_EQ(source.make().nodes().front().name, "out");
  }
}

TEST(ModelOfCheckpoint, HasAllDescribedLosses) {
  nlohmann::json stored = nlohmann::json::parse(R"({
    "description": {"input": [4], "layers": [{"type": "dense", "name": "out", "units": 3},
                    {"type": "dense", "name": "price", "units": 1}], "outputs": ["out", "price"]},
    "loss": "sparse-categorical-crossentropy", "label_smoothing": 0, "losses": 2})");
  const auto source_of = [&] {
    return ModelSource::of_configuration({{"network", stored}}, "state.json");
  };
  EXPECT_EQ(source_of().loss_count, 2) << "its program has a loss of its own";
  EXPECT_TRUE(source_of().losses.empty());
  stored["output_losses"] = nlohmann::json::parse(R"([
    {"output": "out", "target": "kind", "weight": 1, "loss": "sparse-categorical-crossentropy",
     "label_smoothing": 0.25},
    {"output": "price", "target": "cost", "weight": 0.5, "loss": "huber", "delta": 2}])");
  const std::vector<strategy::OutputLoss> losses = source_of().losses;
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_EQ(losses[1].output + losses[1].target, "pricecost");
  EXPECT_EQ(losses[1].weight, 0.5F);
  EXPECT_EQ(std::get<model::Huber>(losses[1].loss).delta, 2);
  stored["output_losses"][1]["output"] = "cost";
  EXPECT_EQ(checkpoint::checkpoint_error([&] { source_of(); }),
            "[state.json] expected the description of a model; it has a loss of cost, which is no "
            "output");
}

TEST(ModelOfCheckpoint, OfTorchScriptHasTargetOfLoss) {
  ModelSource trained;
  trained.name = "net.pt";
  trained.inputs = {{.input = {.name = "x", .shape = {4}}, .categories = 0}};
  trained.outputs = 1;
  trained.loss = model::Huber{.delta = 2};
  trained.script = 7;
  const auto stored = [&] {
    return ModelSource::of_configuration({{"model", trained.to_json()}}, "state.json");
  };
  EXPECT_TRUE(stored().losses.empty());
  EXPECT_EQ(std::get<model::Huber>(stored().loss).delta, 2);
  trained.losses = {
      {.output = "torch", .target = "cost", .loss = model::Huber{.delta = 3}, .weight = 0.5F}};
  const std::vector<strategy::OutputLoss> losses = stored().losses;
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].output + " " + losses[0].target, "torch cost");
  EXPECT_EQ(losses[0].weight, 0.5F);
  EXPECT_EQ(std::get<model::Huber>(losses[0].loss).delta, 3);
  trained.losses[0].target = "";
  EXPECT_EQ(stored().losses.at(0).target, "torch") << "the default";
}

TEST(ModelOfCheckpoint, HasImagePreprocessing) {
  nlohmann::json configuration = nlohmann::json::parse(R"({
    "model": {"images": "cifar10"},
    "network": {
      "description": {"input": [4], "layers": [{"type": "dense", "name": "out", "units": 3}]},
      "loss": "sparse-categorical-crossentropy",
      "label_smoothing": 0}})");
  const ModelSource by_name = ModelSource::of_configuration(configuration, "state.json");
  EXPECT_EQ(by_name.images, "cifar10");
  EXPECT_FALSE(by_name.test_images.has_value());
  EXPECT_EQ(by_name.mapped, "");
  const auto recipe = data::ImageRecipe::parse("imagenet-test", 96, 96);
  configuration["image_recipe"] = recipe.to_json();
  configuration["mapped"] = true;
  configuration["preparation"] = ", images imagenet-train, 96x96x3, 2 maps";
  const ModelSource source = ModelSource::of_configuration(configuration, "state.json");
  EXPECT_EQ(source.test_images, recipe);
  EXPECT_EQ(source.mapped, "images imagenet-train, 96x96x3, 2 maps");
  configuration["image_recipe"] = "none";
  EXPECT_THAT(checkpoint::checkpoint_error(
                  [&] { ModelSource::of_configuration(configuration, "state.json"); }),
              HasSubstr("[state.json] expected the description of a model; it is \"none\""));
}

TEST(ModelOfCheckpoint, ReportsMissingModel) {
  const auto refusal = [](const nlohmann::json& configuration) {
    return checkpoint::checkpoint_error(
        [&] { ModelSource::of_configuration(configuration, "state.json"); });
  };
  EXPECT_THAT(refusal(nlohmann::json::object()), HasSubstr("the network has layers of its own"));
  EXPECT_EQ(
      refusal(nlohmann::json::parse(R"({"network": {"description": 5}})")),
      "[state.json] expected the description of a model; its \"description\" is 5, not an object");
  EXPECT_EQ(refusal(nlohmann::json::parse(R"({"model": {"description": ""}})")),
            "[state.json] expected a checkpoint that describes its network; this one does not: the "
            "network has layers of its own, or a loss, which only the program that trained it can "
            "build");
}

TEST(ChosenModel, RequiresFixedInputSizes) {
  const data::SampleSpec spec = {
      .inputs = {{.name = "tokens", .type = lockstep::ElementType::int32, .shape = {-1}}}};
  try {
    choose_model("mlp", spec, model::SparseCategoricalCrossentropy(), "none");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("[model mlp] expected tensors with known extents"));
    EXPECT_THAT(error.what(), EndsWith("got tokens int32 [?]"));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
