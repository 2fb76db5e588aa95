// Batches as tensors, without a copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/interop/torch/module_loop.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace interop_test {
namespace {

namespace strategy = lockstep::strategy;
using lockstep::ElementType;
using lockstep::allreduce::error_of;
using ::testing::HasSubstr;

const data::SampleSpec kAllTypes{
    .inputs = {{.name = "image", .type = ElementType::uint8, .shape = {2, 3, 1}},
               {.name = "title", .type = ElementType::bytes, .shape = {1}},
               {.name = "ids", .type = ElementType::int64, .shape = {4}},
               {.name = "table", .shape = {5}}},
    .targets = {{.name = "kind", .type = ElementType::int32, .classes = 3},
                {.name = "price", .shape = {1}}},
    .weighted = true};

TEST(BatchTensors, ViewArraysOfEachType) {
  data::Batch batch(kAllTypes, 2);
  struct Expected {
    const char* name;
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
  };
  const NamedTensors inputs = inputs_of(batch, kAllTypes);
  EXPECT_EQ(inputs.pairs().size(), 3U);  // without the title
  for (const Expected& one :
       {Expected{"image", torch::kByte, {2, 2, 3, 1}}, Expected{"ids", torch::kLong, {2, 4}},
        Expected{"table", torch::kFloat, {2, 5}}}) {
    const at::Tensor& tensor = inputs.at(one.name);
    EXPECT_EQ(tensor.scalar_type(), one.type) << one.name;
    EXPECT_EQ(tensor.sizes().vec(), one.sizes) << one.name;
    EXPECT_EQ(tensor.data_ptr(), batch.input(one.name).bytes.data()) << one.name;
  }
  const NamedTensors targets = targets_of(batch, kAllTypes);
  EXPECT_EQ(targets.at("kind").sizes().vec(), std::vector<std::int64_t>{2});
  EXPECT_EQ(targets.at("kind").data_ptr(), batch.labels().data());
  EXPECT_EQ(targets.at("kind").scalar_type(), torch::kInt);
  EXPECT_EQ(targets.at("price").data_ptr(), batch.target("price").bytes.data());
  EXPECT_EQ(weights_of(batch).data_ptr(), batch.weights.data());

  inputs.at("table").fill_(3);  // a write to the tensor is one to the batch
  EXPECT_EQ(batch.input("table").as<float>()[9], 3);
}

TEST(BatchTensors, HaveTheValuesOfAStream) {
  const data::Dataset dataset = lockstep::train::house_data(7).batch(3);
  const auto stream = dataset.stream({.last_step = 3});
  std::vector<std::int64_t> sizes;
  for (std::vector<data::Batch> parts; stream->next(parts);) {
    const at::Tensor table = inputs_of(parts[0], dataset.spec()).at("table");
    sizes.push_back(table.size(0));
    EXPECT_EQ(table.data_ptr(), parts[0].input("table").bytes.data());
    EXPECT_EQ(table[0][1].item<float>(), parts[0].input("table").as<float>()[1]);
    EXPECT_EQ(targets_of(parts[0], dataset.spec()).at("kind").size(0), table.size(0));
    EXPECT_EQ(weights_of(parts[0]).size(0), table.size(0));
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 3, 1}));
}

TEST(BatchTensors, KeepASharedBatchAlive) {
  at::Tensor table;
  std::weak_ptr<data::Batch> watched;
  {
    auto batch = std::make_shared<data::Batch>(kAllTypes, 2);
    watched = batch;
    batch->weights = {0.5F, 2};
    table = weights_of(batch);
    EXPECT_EQ(table.data_ptr(), batch->weights.data());
    EXPECT_EQ(inputs_of(batch, kAllTypes).at("ids").data_ptr(), batch->input("ids").bytes.data());
  }
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(table[1].item<float>(), 2);
  table.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(BatchTensors, PadRaggedTensorsToTheLongestSample) {
  const data::SampleSpec spec{.inputs = {{.name = "steps", .shape = {-1, 2}}}};
  data::Batch batch(spec, 2);
  data::Sample sample = batch.sample();
  for (std::size_t i = 0; i < 2; ++i) {
    batch.move_to(i, sample);
    sample.inputs[0].set_length(i + 1);
    sample.inputs[0].as<float>()[0] = 7;
  }
  batch.pad();
  const at::Tensor steps = inputs_of(batch, spec).at("steps");
  EXPECT_EQ(steps.sizes().vec(), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_EQ(steps[0].sum().item<float>(), 7);
  EXPECT_FALSE(weights_of(batch).defined());
}

TEST(BatchTensors, RejectAnotherSpecAndUnknownNames) {
  data::Batch batch(kAllTypes, 2);
  data::SampleSpec other = kAllTypes;
  other.inputs[3].shape = {6};
  EXPECT_THAT(error_of([&] { inputs_of(batch, other); }),
              HasSubstr("[batch tensors] expected the spec of the batch, which has table of 5 "
                        "elements, got table [6]"));
  other.inputs.pop_back();
  EXPECT_THAT(error_of([&] { inputs_of(batch, other); }),
              HasSubstr("expected the spec of the batch, which has 4 such tensors, got 3"));
  EXPECT_THAT(error_of([&] { inputs_of(batch, kAllTypes).at("title"); }),
              HasSubstr("[tensors] expected one of image, ids, table, got title"));
}

}  // namespace
}  // namespace interop_test
