// Recurrent layers with segments, and with an initial state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/network/network_json.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr std::int64_t kDocumentPositions = 7;
constexpr std::int64_t kDocumentUnits = 4;

struct DocumentSetting {
  std::string kind;
  RecurrentOptions options;

  std::int64_t state_elements() const {
    return (kind == "lstm" ? 2 : 1) * (options.bidirectional ? 2 : 1) * options.units;
  }
  NodeId add_to(Network& network, std::vector<NodeId> inputs) const {
    if (kind == "lstm") return network.add(LSTM(options), std::move(inputs));
    if (kind == "gru") return network.add(GRU(options), std::move(inputs));
    return network.add(SimpleRNN(options), std::move(inputs));
  }
  // The only input is read as tokens and as segments.
  Network network(std::int64_t positions = kDocumentPositions) const {
    Network made({{.name = "segments", .shape = {positions}, .type = ElementType::int32}});
    made.add(Embedding({.vocabulary = 5, .dimension = 3}));
    std::vector<NodeId> inputs = {made.add(PositionalEmbedding())};
    if (options.initial_state) {
      made.add(Flatten());
      inputs.push_back(made.add(Dense({.units = state_elements()})));
    }
    if (options.segments) inputs.push_back(made.input("segments"));
    add_to(made, std::move(inputs));
    return made;
  }
  std::string name() const {
    return kind + (options.return_sequences ? "_sequences" : "") +
           (options.go_backwards ? "_backwards" : "") +
           (options.bidirectional ? "_bidirectional" : "") + (options.segments ? "_segments" : "") +
           (options.initial_state ? "_initial_state" : "");
  }

  friend std::ostream& operator<<(std::ostream& stream, const DocumentSetting& one) {
    return stream << one.name();
  }
};

std::vector<DocumentSetting> document_settings() {
  std::vector<DocumentSetting> settings;
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    for (const bool sequences : {false, true})
      for (const bool segments : {false, true})
        for (const bool initial_state : {false, true})
          for (const int direction : {0, 1, 2}) {
            if (!segments && !initial_state) continue;
            settings.push_back({kind,
                                {.units = kDocumentUnits,
                                 .return_sequences = sequences,
                                 .go_backwards = direction == 1,
                                 .bidirectional = direction == 2,
                                 .segments = segments,
                                 .initial_state = initial_state}});
          }
  return settings;
}

// Padding at the end, before, within and between documents, and no padding.
std::vector<std::int32_t> segments_of_samples() {
  return {1, 1, 1, 2, 2, 0, 0,  //
          0, 3, 0, 3, 3, 1, 2,  //
          4, 4, 4, 4, 4, 4, 4};
}

class RecurrentDocuments : public testing::TestWithParam<DocumentSetting> {};

TEST_P(RecurrentDocuments, MatchFiniteDifferences) {
  expect_gradients_match_differences(GetParam().network());
}

TEST_P(RecurrentDocuments, RoundToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial exact(GetParam().network(), 3);
  Trial rounded(GetParam().network(), 3, 1, Precision::bfloat16);
  exact.indices() = rounded.indices() = segments_of_samples();
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.15f), exact.predict()))
      << "values up to 5, where bfloat16 has steps of 0.03";
}

TEST_P(RecurrentDocuments, AreReadBackFromTheirDescription) {
  const Network network = GetParam().network();
  const auto described = network_to_json(network);
  ASSERT_TRUE(described);
  const Network read = network_from_json(described->dump(), "net.json");
  EXPECT_EQ(network_to_json(read), described);
  EXPECT_EQ(read.nodes().back().inputs, network.nodes().back().inputs);
}

// Without positions, so that the inputs of a document do not depend on its place.
TEST_P(RecurrentDocuments, AreIndependent) {
  const DocumentSetting& setting = GetParam();
  if (!setting.options.segments || setting.options.initial_state) return;
  const auto network = [](DocumentSetting variant, std::int64_t positions, bool segments) {
    variant.options.segments = segments;
    Network made({{.name = "segments", .shape = {positions}, .type = ElementType::int32}});
    std::vector<NodeId> inputs = {made.add(Embedding({.vocabulary = 5, .dimension = 3}))};
    if (segments) inputs.push_back(made.input("segments"));
    variant.add_to(made, std::move(inputs));
    return made;
  };
  DocumentSetting sequences = setting;
  sequences.options.return_sequences = true;
  Trial whole(network(sequences, kDocumentPositions, true), 1);
  whole.indices() = {0, 3, 3, 0, 1, 1, 1};
  if (setting.options.go_backwards) std::ranges::reverse(whole.indices());
  const std::vector<float> rows = whole.predict();
  const auto row = rows.size() / kDocumentPositions;
  for (const auto& [document, begin, count] : {std::tuple{3, 1u, 2u}, {1, 4u, 3u}}) {
    Trial alone(network(sequences, count, false), 1);
    for (const ParameterInfo& entry : whole.model().parameter_table().entries())
      std::ranges::copy(whole.parameter(entry.name), alone.parameter(entry.name).begin());
    alone.model().parameters_changed();
    alone.indices().assign(count, document);
    EXPECT_THAT(
        std::vector<float>(rows.begin() + static_cast<std::ptrdiff_t>(begin * row),
                           rows.begin() + static_cast<std::ptrdiff_t>((begin + count) * row)),
        Pointwise(FloatNear(1e-6f), alone.predict()))
        << document;
  }
  EXPECT_THAT(std::vector<float>(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(row)),
              Each(0.0f));
}

INSTANTIATE_TEST_SUITE_P(Settings, RecurrentDocuments, testing::ValuesIn(document_settings()),
                         [](const auto& test) { return test.param.name(); });

TEST(RecurrentStates, HaveGradientsIfOthersAreFrozen) {
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    for (const std::vector<std::string>& frozen :
         {std::vector<std::string>{"embedding/*", "positional_embedding/*"},  // the other input
          std::vector<std::string>{"dense/*"},
          std::vector<std::string>{std::string(kind) + "/*"}}) {
      SCOPED_TRACE(kind + (": " + frozen.front()));
      Network network = DocumentSetting{
          kind,
          {.units = kDocumentUnits,
           .bidirectional = true,
           .segments = true,
           .initial_state =
               true}}.network();
      network.freeze(frozen);
      expect_gradients_match_differences(network);
    }
}

TEST(RecurrentStates, AreTheLastOutputIfAllIsPadding) {
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    for (const bool sequences : {false, true}) {
      SCOPED_TRACE(kind);
      DocumentSetting setting{kind, {.units = 4, .return_sequences = sequences, .segments = true}};
      Trial zeros(setting.network(), 1);
      std::ranges::fill(zeros.indices(), 0);
      EXPECT_THAT(zeros.predict(), Each(0.0f));
      zeros.train();
      EXPECT_THAT(zeros.gradient(std::string(kind) + "/kernel"), Each(0.0f));
      if (sequences) continue;
      setting.options.initial_state = true;
      Network network = setting.network();
      network.output("last", network.last());
      network.output("state", network.last() - 1);
      Trial trial(std::move(network), 1);
      std::ranges::fill(trial.indices(), 0);
      const std::vector<float> last = trial.predict();
      const BatchView batch{.samples = 1, .indices = trial.indices()};
      const auto state = trial.model().predict_batch(batch, 1);
      EXPECT_THAT(last,
                  Pointwise(FloatNear(0), std::vector<float>(state.begin(), state.begin() + 4)));
    }
}

// The second half of a sequence continues the first. An LSTM has no output of its cell state.
TEST(RecurrentStates, ContinueASequence) {
  for (const char* kind : {"gru", "simple_rnn"}) {
    SCOPED_TRACE(kind);
    const DocumentSetting plain{kind, {.units = 4}};
    const DocumentSetting continued{kind, {.units = 4, .initial_state = true}};
    Network whole({6, 3});
    plain.add_to(whole, {kInput});
    Network halves({6, 3});
    const NodeId second = halves.add(Cropping1D({.before = 3, .after = 0}), {kInput});
    const NodeId first = halves.add(Cropping1D({.before = 0, .after = 3}), {kInput});
    const NodeId state = plain.add_to(halves, {first});
    continued.add_to(halves, {second, state});
    Trial expected(std::move(whole), 2);
    Trial trial(std::move(halves), 2);
    trial.features() = expected.features();
    for (const ParameterInfo& entry : expected.model().parameter_table().entries())
      for (const char* layer : {"", "_1"})
        std::ranges::copy(
            expected.parameter(entry.name),
            trial.parameter(kind + (layer + entry.name.substr(entry.name.find('/')))).begin());
    trial.model().parameters_changed();
    EXPECT_THAT(trial.predict(), Pointwise(FloatNear(1e-6f), expected.predict()));
  }
}

TEST(RecurrentStates, CheckTheirInputs) {
  const auto refusal = [](const DocumentSetting& setting, const Shape& state,
                          std::int64_t positions, std::size_t inputs = 3) {
    return input_error_of([&] {
      Network network({{.name = "values", .shape = {7, 3}},
                       {.name = "state", .shape = state},
                       {.name = "segments", .shape = {positions}, .type = ElementType::int32}});
      std::vector<NodeId> all = {network.input("values"), network.input("state"),
                                 network.input("segments")};
      all.erase(all.begin() + 1, all.end() - static_cast<std::ptrdiff_t>(inputs - 1));
      setting.add_to(network, all);
    });
  };
  const DocumentSetting both{
      "lstm", {.units = 2, .bidirectional = true, .segments = true, .initial_state = true}};
  EXPECT_EQ(refusal(both, {8}, 7), "(no error)");
  EXPECT_EQ(refusal(both, {4}, 7), "[layer lstm (lstm)] expected an initial state [8], got [4]");
  EXPECT_EQ(refusal(both, {8}, 6), "[layer lstm (lstm)] expected segments [7], got [6]");
  EXPECT_EQ(refusal(both, {8}, 7, 2),
            "[layer lstm (lstm)] expected an input [positions, features], its initial state, its "
            "segments, got 2 inputs");
  const DocumentSetting segments{"gru", {.units = 2, .segments = true}};
  EXPECT_EQ(refusal(segments, {2}, 7, 2), "(no error)");
  EXPECT_EQ(refusal(segments, {2}, 7),
            "[layer gru (gru)] expected an input [positions, features], its segments, got 3 "
            "inputs");
  const DocumentSetting state{"simple_rnn", {.units = 2, .initial_state = true}};
  EXPECT_THAT(refusal(state, {2}, 7), HasSubstr("expected float32 values"));
}

TEST(RecurrentStates, RefuseNegativeSegments) {
  Network network({{.name = "values", .shape = {3, 2}},
                   {.name = "segments", .shape = {3}, .type = ElementType::int32}});
  network.add(LSTM({.units = 2, .segments = true}), {kInput, network.input("segments")});
  Trial trial(std::move(network), 1);
  const std::vector<std::int32_t> segments = {1, 1, -1};
  const InputView inputs[] = {{.features = trial.features()}, {.indices = segments}};
  EXPECT_THAT(error_of(ErrorCategory::data,
                       [&] { trial.model().predict_batch({.samples = 1, .inputs = inputs}); }),
              HasSubstr("expected indices 0 .. 2147483647 for the input \"segments\""));
}

}  // namespace
}  // namespace lockstep::inline v0::model
