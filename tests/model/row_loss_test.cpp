// Cross-entropy and the layer of its logits in blocks of rows, compared with logits that are stored
// whole.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/sides.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using device::Device;

constexpr std::int64_t kWords = 37;
constexpr std::int64_t kTextLength = 7;
constexpr std::int64_t kTexts = 22;  // 154 rows: two blocks of 64, and one of 26
constexpr std::size_t kWhole = std::size_t{1} << 40;
constexpr std::size_t kInBlocks = 1;

struct HeadCase {
  std::string name;
  bool tied = false;
  bool use_bias = false;
  std::vector<std::string> frozen = {};
};

const HeadCase kHeadCases[] = {
    {.name = "dense", .use_bias = true},
    {.name = "dense_without_bias"},
    {.name = "tied", .tied = true},
    {.name = "tied_with_bias", .tied = true, .use_bias = true},
    {.name = "frozen", .use_bias = true, .frozen = {"head/*"}},
    {.name = "frozen_kernel", .use_bias = true, .frozen = {"head/kernel"}},
    {.name = "frozen_table", .tied = true, .frozen = {"table/*"}},
    {.name = "only_trained", .use_bias = true, .frozen = {"table/*", "dense/*"}},
};

std::shared_ptr<const Network> texts_network(const HeadCase& head, std::int64_t words = kWords,
                                             std::int64_t length = kTextLength) {
  Network network({{.name = "words", .shape = {length}, .type = ElementType::int32}}, "text");
  network.add(Embedding({.vocabulary = words, .dimension = 8}), {kInput}, "table");
  network.add(Dense({.units = 8}));
  network.add(Tanh());
  if (head.tied)
    network.add(TiedDense({.to = "table", .use_bias = head.use_bias}), {network.last()}, "head");
  else
    network.add(Dense({.units = words, .use_bias = head.use_bias}), {network.last()}, "head");
  if (!head.frozen.empty()) network.freeze(head.frozen);
  return std::make_shared<const Network>(std::move(network));
}

// Words, and a word to predict at each position, some masked.
struct TextBatch {
  std::vector<std::int32_t> words = labels(kTexts * kTextLength, kWords, 1);
  std::vector<std::int32_t> next = labels(kTexts * kTextLength, kWords, 2);
  std::vector<float> per_text = numbers(kTexts, 3);
  std::vector<float> per_word = numbers(kTexts * kTextLength, 4);

  TextBatch() {
    for (const std::size_t at : {0U, 5U, 63U, 64U, 65U, 127U, 128U, 153U}) next[at] = kMasked;
    for (std::vector<float>* weights : {&per_text, &per_word})
      for (float& weight : *weights) weight = std::max(weight, 0.0f);  // half of them 0
  }

  enum class Weights { none, per_text, per_word };
  BatchView part(std::size_t first, std::size_t count, Weights weights = Weights::none) const {
    BatchView view{
        .samples = static_cast<std::int64_t>(count),
        .indices = std::span(words).subspan(first * kTextLength, count * kTextLength),
        .targets = {.labels = std::span(next).subspan(first * kTextLength, count * kTextLength)}};
    if (weights == Weights::per_text)
      view.targets.sample_weights = std::span(per_text).subspan(first, count);
    if (weights == Weights::per_word)
      view.targets.sample_weights =
          std::span(per_word).subspan(first * kTextLength, count * kTextLength);
    return view;
  }
  BatchView all(Weights weights = Weights::none) const { return part(0, kTexts, weights); }
};

constexpr StepContext kStepOfTexts{.global_samples = kTexts + 3, .loss_scale = 4};

void expect_same_sums(const MetricSums& sums, const MetricSums& expected, double tolerance) {
  EXPECT_NEAR(sums.loss_sum, expected.loss_sum, tolerance * expected.loss_sum);
  EXPECT_EQ(sums.samples, expected.samples);
  EXPECT_EQ(sums.more_positions, expected.more_positions);
  EXPECT_EQ(sums.masked, expected.masked);
  EXPECT_NEAR(sums.weight_excess, expected.weight_excess, 1e-12);
  EXPECT_EQ(sums.has_accuracy(), expected.has_accuracy());
  if (tolerance > 1e-4) return;
  EXPECT_EQ(sums.correct, expected.correct);
  EXPECT_EQ(sums.correct_top5, expected.correct_top5);
}

class RowLosses : public ::testing::TestWithParam<HeadCase> {
 protected:
  std::shared_ptr<const Network> network_ = texts_network(GetParam());
  TextBatch texts_;
};

TEST_P(RowLosses, MatchWholeLogits) {
  Side whole(Device{}, network_, {.logits_bytes = kWhole});
  Side rows(Device{}, network_, {.logits_bytes = kInBlocks});
  for (const float smoothing : {0.0f, 0.1f})
    for (const auto weights :
         {TextBatch::Weights::none, TextBatch::Weights::per_text, TextBatch::Weights::per_word}) {
      SCOPED_TRACE(fmt::format("{}, {}", smoothing, static_cast<int>(weights)));
      const Loss loss = SparseCategoricalCrossentropy{smoothing};
      const BatchView batch = texts_.all(weights);
      const MetricSums expected = whole.model().train_batch(batch, kStepOfTexts, loss);
      expect_same_sums(rows.model().train_batch(batch, kStepOfTexts, loss), expected, 1e-6);
      EXPECT_GT(norm(whole.gradients()), 0);
      EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-6);
    }
  EXPECT_NE(rows.model().memory().activations, whole.model().memory().activations)
      << "their logits are in blocks";
}

TEST_P(RowLosses, AddUpOverParts) {
  Side whole(Device{}, network_, {.logits_bytes = kWhole});
  const MetricSums expected = whole.model().train_batch(texts_.all(), kStepOfTexts, kLoss);
  for (const std::size_t parts : {1U, 2U, 3U, 4U}) {  // replicas or micro-batches
    Side rows(Device{}, network_, {.logits_bytes = kInBlocks});
    MetricSums sums;
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t first = k * kTexts / parts;
      const std::size_t end = (k + 1) * kTexts / parts;
      sums += rows.model().train_batch(texts_.part(first, end - first), kStepOfTexts, kLoss, k > 0);
    }
    expect_same_sums(sums, expected, 1e-6);
    EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-6) << parts;
  }
}

TEST_P(RowLosses, ReportEachGradientOnceInOrder) {
  Side rows(Device{}, network_, {.logits_bytes = kInBlocks});
  std::vector<std::size_t> reported;
  rows.model().train_batch(texts_.all(), kStepOfTexts, kLoss, false,
                           [&](std::size_t parameter) { reported.push_back(parameter); });
  std::vector<std::size_t> expected(network_->trained().entries().size());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i;
  EXPECT_EQ(reported, expected);
}

TEST_P(RowLosses, RoundToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Side whole(Device{}, network_, {.precision = Precision::bfloat16, .logits_bytes = kWhole});
  Side rows(Device{}, network_, {.precision = Precision::bfloat16, .logits_bytes = kInBlocks});
  const MetricSums expected = whole.model().train_batch(texts_.all(), kStepOfTexts, kLoss);
  expect_same_sums(rows.model().train_batch(texts_.all(), kStepOfTexts, kLoss), expected, 1e-3);
  EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Heads, RowLosses, ::testing::ValuesIn(kHeadCases),
                         [](const auto& test) { return test.param.name; });

TEST(RowLoss, UsesTheMemoryOfABlock) {
  constexpr std::int64_t kManyWords = 50'257;
  constexpr std::int64_t kLongText = 64;
  constexpr std::int64_t kSamples = 8;
  const auto network = texts_network({.name = "", .tied = true}, kManyWords, kLongText);
  const std::size_t logits = kSamples * kLongText * kManyWords * sizeof(float);  // 98 MiB
  Side whole(Device{}, network, {.logits_bytes = kWhole});
  Side rows(Device{}, network, {});
  whole.model().prepare(kSamples, true);
  rows.model().prepare(kSamples, true);
  EXPECT_GE(whole.model().memory().activations, 2 * logits);  // and their gradient
  EXPECT_LE(rows.model().memory().activations, logits / 2 + (std::size_t{16} << 20));
  const auto count = static_cast<std::size_t>(kSamples * kLongText);
  const std::vector<std::int32_t> words = labels(count, kManyWords, 1);
  const std::vector<std::int32_t> next = labels(count, kManyWords, 2);
  const BatchView batch{.samples = kSamples, .indices = words, .targets = {.labels = next}};
  const StepContext context{.global_samples = kSamples};
  const MetricSums expected = whole.model().train_batch(batch, context, kLoss);
  expect_same_sums(rows.model().train_batch(batch, context, kLoss), expected, 1e-6);
  EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-6);
  EXPECT_LE(rows.model().memory().activations, logits / 2 + (std::size_t{16} << 20))
      << "the prepared plan is used";
}

TEST(RowLoss, SupportsMixedSamples) {
  constexpr std::size_t kImages = 150;
  Network network({9});
  network.add(Dense({.units = 8}));
  network.add(Tanh());
  network.add(Dense({.units = 11}));
  const auto shared = std::make_shared<const Network>(std::move(network));
  const std::vector<float> features = numbers(kImages * 9, 1);
  const std::vector<std::int32_t> own = labels(kImages, 11, 2);
  const std::vector<std::int32_t> partners = labels(kImages, 11, 3);
  std::vector<float> weights = numbers(kImages, 4);
  for (float& weight : weights) weight = (weight + 1) / 2;
  const BatchView batch{.samples = kImages,
                        .features = features,
                        .targets = {.labels = own, .partner_labels = partners, .weights = weights}};
  Side whole(Device{}, shared, {.logits_bytes = kWhole});
  Side rows(Device{}, shared, {.logits_bytes = kInBlocks});
  const StepContext context{.global_samples = kImages};
  const MetricSums expected = whole.model().train_batch(batch, context, kLoss);
  expect_same_sums(rows.model().train_batch(batch, context, kLoss), expected, 1e-6);
  EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-6);
}

// Two outputs by rows, and one that is whole between them.
TEST(RowLoss, DoesNotAffectOtherOutputs) {
  Network network({{.name = "words", .shape = {kTextLength}, .type = ElementType::int32}});
  const NodeId table = network.add(Embedding({.vocabulary = kWords, .dimension = 8}));
  const NodeId next = network.add(Dense({.units = kWords}), {table});
  const NodeId value = network.add(Dense({.units = 2}), {table});
  const NodeId kind = network.add(Dense({.units = 5}), {table});
  network.output("next", next);
  network.output("value", value);
  network.output("kind", kind);
  const auto shared = std::make_shared<const Network>(std::move(network));
  const TextBatch texts;
  const std::vector<float> values = numbers(kTexts * kTextLength * 2, 5);
  const std::vector<std::int32_t> kinds = labels(kTexts * kTextLength, 5, 6);
  const std::vector<Targets> more = {{.values = values}, {.labels = kinds}};
  BatchView batch = texts.all();
  batch.more_targets = more;
  const TotalLoss loss({{.loss = kLoss, .output = 0, .weight = 0.5f},
                        {.loss = MeanSquaredError{}, .output = 1, .weight = 2},
                        {.loss = kLoss, .output = 2, .weight = 3}});
  Side whole(Device{}, shared, {.logits_bytes = kWhole});
  Side rows(Device{}, shared, {.logits_bytes = kInBlocks});
  const MetricSums expected = whole.model().train_batch(batch, kStepOfTexts, loss);
  expect_same_sums(rows.model().train_batch(batch, kStepOfTexts, loss), expected, 1e-6);
  EXPECT_LE(error(rows.gradients(), whole.gradients()), 1e-6);
}

// Results are then bit-identical.
TEST(RowLoss, IsNotUsedIfTheLogitsHaveOtherReaders) {
  const TextBatch texts;
  const auto expect_whole = [&](std::shared_ptr<const Network> network, bool keep) {
    Side whole(Device{}, network, {.logits_bytes = kWhole});
    Side rows(Device{}, network, {.logits_bytes = kInBlocks});
    if (keep) rows.model().keep_outputs(kTexts);
    const MetricSums expected = whole.model().train_batch(texts.all(), kStepOfTexts, kLoss);
    EXPECT_EQ(rows.model().train_batch(texts.all(), kStepOfTexts, kLoss).loss_sum,
              expected.loss_sum);
    EXPECT_EQ(rows.gradients(), whole.gradients());
    EXPECT_EQ(rows.model().memory().activations, whole.model().memory().activations);
    if (!keep) return;
    const auto outputs = whole.model().predict_batch(texts.all());
    const auto kept = rows.model().kept_outputs();
    EXPECT_LE(error({kept[0].begin(), kept[0].end()}, {outputs.begin(), outputs.end()}), 1e-6);
  };
  expect_whole(texts_network(kHeadCases[0]), true);
  Network cut = *texts_network(kHeadCases[0]);
  cut.add(ReLU());
  expect_whole(std::make_shared<const Network>(std::move(cut)), false);
  Network read = *texts_network(kHeadCases[0]);
  const NodeId head = read.last();
  read.output("head", head);
  read.output("more", read.add(Dense({.units = 3}), {head}));
  expect_whole(std::make_shared<const Network>(std::move(read)), false);
}

}  // namespace
}  // namespace lockstep::inline v0::model
