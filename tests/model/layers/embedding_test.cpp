#include "lockstep/model/layers/embedding/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr std::size_t kDimension = 3;

Network word_network(const Shape& shape, std::int64_t vocabulary = 6,
                     std::int64_t dimension = kDimension) {
  Network network({{.name = "words", .shape = shape, .type = ElementType::int32}}, "text");
  network.add(Embedding({.vocabulary = vocabulary, .dimension = dimension}));
  return network;
}

// Some are compile-time constants in the CPU's loops.
class EmbeddingOfDimension : public ::testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Dimensions, EmbeddingOfDimension,
                         ::testing::Values(1, 2, kDimension, 4, 8, 16, 32, 40),
                         ::testing::PrintToStringParamName());

// Row i of values is row indices[i] of the table, and the gradient of a row of the table is the sum
// over its positions, in order.
TEST_P(EmbeddingOfDimension, ReadsARowForEachIndex) {
  const std::size_t dimension = GetParam();
  const auto shape_network = [&](const Shape& shape) {
    return word_network(shape, 6, static_cast<std::int64_t>(dimension));
  };
  if (const auto reason = why_no_bfloat16(); !reason) {
    Trial rounded(shape_network({4}), 5, 1, Precision::bfloat16);
    const auto table = rounded.parameter("embedding/embeddings");
    const std::vector<float> outputs = rounded.predict();
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_NEAR(outputs[i],
                  table[static_cast<std::size_t>(rounded.indices()[i / dimension]) * dimension +
                        i % dimension],
                  1.0f / 256);
  }
  for (const Shape& shape : {Shape{}, Shape{4}, Shape{2, 2}}) {
    SCOPED_TRACE(to_string(shape));
    Trial trial(shape_network(shape), 5);
    Shape expected_shape = shape;
    expected_shape.push_back(static_cast<std::int64_t>(dimension));
    EXPECT_EQ(trial.network().output_shape(), expected_shape);
    const auto table = trial.parameter("embedding/embeddings");
    std::vector<float> expected;
    for (const std::int32_t index : trial.indices())
      for (std::size_t d = 0; d < dimension; ++d)
        expected.push_back(table[static_cast<std::size_t>(index) * dimension + d]);
    EXPECT_THAT(trial.predict(), ElementsAreArray(expected));

    trial.train();
    std::vector<float> rows(expected.size());
    compute_loss(MeanSquaredError{}, expected, 5, {.values = trial.targets()}, 5, rows);
    std::vector<float> sums(table.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      sums[static_cast<std::size_t>(trial.indices()[i / dimension]) * dimension + i % dimension] +=
          rows[i];
    EXPECT_THAT(trial.gradient("embedding/embeddings"), ElementsAreArray(sums));
    const std::size_t unused = 5 * dimension;  // the indices of a trial are below 5
    EXPECT_THAT(trial.gradient("embedding/embeddings").subspan(unused), Each(0.0f));
  }
}

TEST(Embedding, MatchesFiniteDifferences) {
  Network network = word_network({4});
  network.add(Flatten());
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(network);
}

TEST(Embedding, IsInitiallyUniform) {
  Trial trial(word_network({4}, 1000), 1);
  trial.model().initialize(1);
  const auto [low, high] = std::ranges::minmax(trial.parameter("embedding/embeddings"));
  EXPECT_GE(low, -0.05f);
  EXPECT_LT(low, -0.049f);
  EXPECT_LT(high, 0.05f);
  EXPECT_GT(high, 0.049f);
}

TEST(Embedding, RefusesIndicesOutsideItsTable) {
  for (const std::int32_t wrong : {-1, 6}) {
    Trial trial(word_network({4}), 3);
    trial.indices()[9] = wrong;
    const std::string expected =
        "[layer embedding] expected indices 0 .. 5 for the input \"words\"";
    for (const auto& pass : std::vector<std::function<void()>>{
             [&] { trial.train(); }, [&] { trial.evaluate(); }, [&] { trial.predict(); }})
      EXPECT_THAT(error_of(ErrorCategory::data, pass),
                  ::testing::AllOf(HasSubstr(expected), HasSubstr("sample 2 of the batch has ")));
  }
  Trial trial(word_network({4}), 3);
  trial.indices().pop_back();
  EXPECT_EQ(error_of(ErrorCategory::data, [&] { trial.predict(); }),
            "[text] expected 12 indices for the input \"words\", got 11");
}

TEST(Embedding, ReadsInt32InputsAndOthersDoNot) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(Embedding({.vocabulary = 6, .dimension = 2})); }),
            "[layer embedding (embedding)] expected an int32 input of the network, got float32 "
            "values");
  EXPECT_EQ(input_error_of([] { word_network({4}).add(Dense({.units = 2}), {kInput}); }),
            "[layer dense (dense)] expected float32 values, got the int32 input \"words\"");
  EXPECT_THAT(input_error_of([] { word_network({4}, 0); }),
              HasSubstr("expected a vocabulary and a dimension of at least 1, got 0 and 3"));
}

}  // namespace
}  // namespace lockstep::inline v0::model
