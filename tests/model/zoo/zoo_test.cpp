// make() with the names of all networks; linear, mlp and wide_deep.
#include "lockstep/model/zoo/zoo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/element_type.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/network/network_json.h"
#include "tests/model/support/error_of.h"
#include "tests/model/zoo/support.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::input_error_of;
using model::Network;
using model::Shape;

TEST(Linear, IsOneDenseLayer) {
  const Network network = linear({28, 28, 1}, 10);
  EXPECT_EQ(network.parameters().element_count(), 7850u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(linear({4}, 3).parameters().element_count(), 15u) << "a vector needs no flattening";
}

TEST(Mlp, HasTheRequestedHiddenLayers) {
  EXPECT_EQ(mlp({28, 28, 1}, 10).parameters().element_count(),
            784u * 128 + 128 + 128 * 128 + 128 + 1290);
  EXPECT_EQ(mlp({4}, 3, {7}).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:7", {4}, 3).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:10,20", {4}, 3).parameters().element_count(), 5u * 10 + 11 * 20 + 21 * 3);
}

TEST(Mlp, IsADescriptionWithDropoutLayers) {
  const Network described =
      model::network_from_json(R"({"layers": [
      {"type": "dense", "units": 8}, {"type": "relu"}, {"type": "dropout", "rate": 0.25},
      {"type": "dense", "units": 6}, {"type": "relu"}, {"type": "dropout", "rate": 0.25},
      {"type": "dense", "units": 3}]})",
                               "mlp.json", {.input = Shape{4}, .classes = {}});
  const auto layers = [](const Network& network) {
    return network_to_json(network).value().at("layers").dump();
  };
  EXPECT_EQ(layers(mlp({4}, 3, {8, 6}, 0.25F)), layers(described));
  EXPECT_EQ(layers(make("mlp:8,6,dropout=0.25", {4}, 3)), layers(described));
}

TEST(Mlp, HasTheNameForMake) {
  for (const char* name : {"mlp", "mlp:7", "mlp:32,16", "mlp:dropout=0.5", "mlp:7,dropout=0.2"})
    EXPECT_EQ(make(name, {4}, 3).name(), name);
  EXPECT_EQ(mlp({4}, 3, {10, 20}).name(), "mlp:10,20");
}

TEST(WideDeep, AddsALinearModelAndAnMlpOfAllInputs) {
  const Network network = make("wide_deep:16x7,embedding=4", kTable, 3);
  EXPECT_EQ(network.name(), "wide_deep:16x7,embedding=4");
  ASSERT_EQ(network.inputs().size(), 3u);
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({5 + 4 + 4}));
  EXPECT_EQ(network.nodes().back().inputs.size(), 4u);
  EXPECT_EQ(network.parameters().find("wide_city x color/embeddings")->shape, Shape({1000, 3}));
  EXPECT_EQ(network.parameters().element_count(),
            (5u + 100 + 1000) * 3 + (100 + 1000) * 4 + 14 * 16 + 17 * 7 + 8 * 3);
  network.check_complete();
  EXPECT_EQ(make("wide_deep", kTable, 3).name(), "wide_deep");
  EXPECT_EQ(make("wide_deep:embedding=4", kTable, 3).name(), "wide_deep:128x128,embedding=4");
}

TEST(WideDeep, ReadsOnlyFloatsOrOneCategory) {
  EXPECT_EQ(make("wide_deep:7", {4}, 3).parameters().element_count(), 4u * 3 + 5 * 7 + 8 * 3);
  const Network network = wide_deep(std::span(kTable).subspan(1, 1), 3, {.hidden = {}});
  EXPECT_EQ(network.parameters().element_count(), 100u * 3 + 100 * 8 + 9 * 3);
}

TEST(WideDeep, RejectsOtherInputsAndOptions) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 9}};
  EXPECT_EQ(input_error_of([&] { wide_deep(words, 3); }),
            "[wide_deep] expected floats, or one number of a category per sample, got words [7]");
  expect_refusals(kTable, {{"wide_deep:", "expected a value before and after each colon"},
                           {"wide_deep:0", "expected UNITSxUNITS... in whole numbers above 0"},
                           {"wide_deep:8x", "expected UNITSxUNITS... in whole numbers above 0"},
                           {"wide_deep:8,embedding=", "expected embedding=VALUE"},
                           {"wide_deep:8,embedding=x",
                            "expected embedding to be a whole number of at least 1, got "
                            "\"embedding=x\""},
                           {"wide_deep:8,8",
                            "expected features, UNITSxUNITS... or embedding= as settings of "
                            "wide_deep, got \"8\""},
                           {"wide_deep:8embedding=8", "got \"8embedding\""}});
}

TEST(Make, RejectsSeveralInputsForANetworkThatReadsOne) {
  EXPECT_EQ(input_error_of([] { make("mlp", kTable, 3); }),
            "[model] expected gpt, bert, minilm, lstm, seq2seq, caption, wide_deep or a FILE.json "
            "for data with several inputs, or with indices, got \"mlp\" for features, city, city x "
            "color");
  EXPECT_EQ(make("mlp", std::span(kTable).first(1), 3).name(), "mlp");
}

TEST(Make, AcceptsEveryName) {
  for (const std::string_view name : names()) {
    const bool reads_tokens = name == "gpt" || name == "bert" || name == "minilm";
    const Network network = name == "caption"   ? make(name, kCaptions, 20)
                            : name == "seq2seq" ? make(name, kPair, 20)
                            : reads_tokens      ? make(name, std::span(kTokens).first(1), 10)
                                                : make(name, {28, 28, 1}, 10);
    const bool is_transformer = reads_tokens || name == "vit";
    const char* const sizes = name == "minilm"    ? ":6x384"
                              : name == "caption" ? ":512"
                              : name == "seq2seq" ? ":1x256"
                              : is_transformer    ? ":12x768"
                                                  : "";
    EXPECT_EQ(network.name(), std::string(name) + sizes);
    EXPECT_EQ(network.output_shape(), name == "gpt"       ? Shape({8, 65})
                                      : name == "caption" ? Shape({6, 20})
                                      : name == "seq2seq" ? Shape({5, kPair[2].categories})
                                                          : Shape({10}))
        << name;
  }
}

TEST(Make, OmitsTheHeadOfFeatures) {
  for (const auto& [name, features] : {std::pair{"resnet18", 512},
                                       {"resnet50", 2048},
                                       {"fast_cifar", 256},
                                       {"cnn", 128},
                                       {"mlp", 128},
                                       {"mlp:10,20", 20}}) {
    const Network whole = make(name, {32, 32, 3}, 10);
    Network network = make(features_name(name), {32, 32, 3}, 0);
    EXPECT_EQ(network.name(), features_name(name));
    EXPECT_EQ(network.output_shape(), Shape({features})) << name;
    network.add(model::Dense({.units = 10}), {network.last()}, whole.nodes().back().name);
    ASSERT_EQ(network.parameters().entries().size(), whole.parameters().entries().size()) << name;
    for (std::size_t i = 0; i < whole.parameters().entries().size(); ++i)
      EXPECT_EQ(network.parameters().entries()[i].name, whole.parameters().entries()[i].name);
  }
  EXPECT_EQ(
      input_error_of([] { make("linear:features", {4}, 3); }),
      "[features] expected a network of layers with parameters one after another, the last of "
      "which is its head, got linear");
}

TEST(Make, RejectsAnUnknownNameWithTheNearest) {
  EXPECT_EQ(
      input_error_of([] {
        make("resnet-18", {28, 28, 1}, 10);
      }),
      "[model] expected one of linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50, "
      "resnet101, resnet152, mobilenet_v2, wide_deep, lstm, gpt, bert, minilm, seq2seq, caption, "
      "vit, or a FILE.json, got "
      "\"resnet-18\" (did you mean resnet18?)");
  for (const auto& [name, kind] :
       {std::pair("linear:3", "linear"), std::pair("resnet18:2", "resnet18")})
    EXPECT_EQ(input_error_of([&] {
                make(name, {8, 8, 3}, 2);
              }),
              fmt::format("[model] expected features as settings of {}, got \"{}\"", kind,
                          std::string(name).substr(std::string(kind).size() + 1)));
}

TEST(Make, RejectsInvalidSizes) {
  const DataInput values[] = {{{.name = "values", .shape = {4}}}};
  EXPECT_EQ(input_error_of([] { make("mlp:10,dropout=1", {4}, 3); }),
            "[model] expected dropout to be below 1, got \"dropout=1\"");
  for (const char* name : {"mlp:0", "mlp:10x10", "mlp:-1", "mlp:10,0"})
    expect_refusals(values, {{name, "[model] expected UNITS in whole numbers above 0, got"}});
  for (const char* name : {"mlp:", "mlp:10,", "mlp:10,,10"})
    expect_refusals(values, {{name, "[model] expected a value before and after each colon"}});
}

}  // namespace
}  // namespace lockstep::inline v0::zoo
