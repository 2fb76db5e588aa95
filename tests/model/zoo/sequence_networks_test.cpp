// Networks that read or write sequences, such as texts: their sizes, shapes and names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "lockstep/base/element_type.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/zoo/support.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::Initializer;
using model::input_error_of;
using model::Network;
using model::Shape;
using ::testing::HasSubstr;

TEST(Lstm, ReadsPositionsOfFeatures) {
  const Network network = make("lstm:3x16", {20, 5}, 4);
  EXPECT_EQ(network.name(), "lstm:3x16");
  EXPECT_EQ(network.output_shape(), Shape({4}));
  EXPECT_EQ(shape_of(network, "lstm_1"), Shape({20, 16}));
  EXPECT_EQ(shape_of(network, "lstm_2"), Shape({16}));
  EXPECT_EQ(network.parameters().element_count(),
            4u * 16 * (5 + 16 + 1) + 2 * 4 * 16 * (16 + 16 + 1) + 17 * 4);
  EXPECT_EQ(shape_of(make("lstm", {28, 28, 3}, 10), "reshape"), Shape({28, 28 * 3}))
      << "a row of an image is a position";
  EXPECT_EQ(make("lstm:1x8,features", {20, 5}, 0).output_shape(), Shape({8}));
}

TEST(Lstm, ReadsNumbersThroughAnEmbedding) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100}};
  const Network network = make("lstm:1x16,embedding=8", words, 4);
  EXPECT_EQ(network.name(), "lstm:1x16,embedding=8");
  EXPECT_EQ(network.inputs().front().name, "words");
  EXPECT_EQ(network.parameters().find("embedding/embeddings")->shape, Shape({100, 8}));
  EXPECT_EQ(network.parameters().element_count(), 100u * 8 + 4 * 16 * (8 + 16 + 1) + 17 * 4);
  EXPECT_EQ(make("lstm", words, 4).name(), "lstm");
  EXPECT_EQ(make("lstm:embedding=8", words, 4).name(), "lstm:2x128,embedding=8");
}

TEST(Lstm, HasAnOutputAtEachPositionIfRequested) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100}};
  const Network network = make("lstm:2x16,embedding=8,return_sequences", words, 100);
  EXPECT_EQ(network.name(), "lstm:2x16,embedding=8,return_sequences");
  EXPECT_EQ(network.output_shape(), Shape({7, 100}));
  EXPECT_EQ(network.parameters().element_count(),
            100u * 8 + 4 * 16 * (8 + 16 + 1) + 4 * 16 * (16 + 16 + 1) + 17 * 100);
  for (const char* name : {"lstm:return_sequences", "lstm:1x8,return_sequences"}) {
    EXPECT_EQ(make(name, words, 4).name(), name);
    EXPECT_EQ(make(name, {20, 5}, 4).output_shape(), Shape({20, 4})) << name;
  }
}

TEST(Lstm, ReadsTheSegmentsOfWordsAndOfFeatures) {
  const model::NetworkInput segments{.name = "segments", .shape = {7}, .type = ElementType::int32};
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100},
                             {segments}};
  const DataInput floats[] = {{{.name = "values", .shape = {7, 2, 3}}}, {segments}};
  for (const std::span<const DataInput> inputs : {std::span(words), std::span(floats)}) {
    const Network network = make("lstm:2x16", inputs, 4);
    network.check_complete();
    EXPECT_EQ(network.output_shape(), Shape({4}));
    for (const char* name : {"lstm", "lstm_1"}) {
      const auto layer = std::ranges::find(network.nodes(), name, &model::Node::name);
      EXPECT_EQ(layer->inputs.back(), network.input("segments")) << name;
    }
    EXPECT_EQ(make("lstm:1x8,features", inputs, 0).output_shape(), Shape({8}));
  }
}

TEST(Lstm, RejectsOtherInputsAndOptions) {
  const std::string expected =
      "[lstm] expected floats [positions, features], or numbers [positions] of categories, and "
      "optionally the segments of the same positions, got ";
  EXPECT_EQ(input_error_of([] { make("lstm", {7}, 3); }), expected + "features [7]");
  const DataInput words{{.name = "words", .shape = {7}, .type = ElementType::int32}};
  EXPECT_EQ(input_error_of([&] { lstm(std::span(&words, 1), 3); }),
            expected + "words [7] of unknown categories");
  const DataInput longer[] = {{{.name = "values", .shape = {8, 2}}}, words};
  EXPECT_EQ(input_error_of([&] { lstm(longer, 3); }), expected + "values [8, 2], words [7]");
  EXPECT_EQ(input_error_of([&] { make("lstm", kTable, 3); }),
            expected + "features [5], city [], city x color []");
  const DataInput values[] = {{{.name = "values", .shape = {7, 2}}}};
  const char* sizes = "expected LAYERSxUNITS in whole numbers above 0, got \"lstm:";
  expect_refusals(values, {{"lstm:2", sizes},
                           {"lstm:0x8", sizes},
                           {"lstm:2x8x8", sizes},
                           {"lstm:2x8,embedding=0", "got \"embedding=0\""},
                           {"lstm:2x8,4x8", "got \"4x8\""},
                           {"lstm:2x8,", "expected a value before and after"},
                           {"lstm:2x8,sequences", "got \"sequences\""},
                           {"lstm:2x8return_sequences", sizes}});
}

TEST(Seq2Seq, PredictsTheTokensOfTargets) {
  const Network network = make("seq2seq:2x8,embedding=6", kPair, 0);
  EXPECT_EQ(network.name(), "seq2seq:2x8,embedding=6");
  EXPECT_EQ(network.output_shape(), Shape({5, 22}));
  EXPECT_EQ(shape_of(network, "encoder.lstm.1"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "decoder.initial.1"), Shape({16}));
  EXPECT_EQ(shape_of(network, "attention.weights"), Shape({5, 8}));
  EXPECT_EQ(network.parameters().element_count(),
            20u * 6 + 22 * 6 + 2 * (32 * (6 + 8 + 1) + 32 * (8 + 8 + 1)) + 2 * 16 * 9 + 8 * 8 +
                8 * 9 + 8 + 16 * 8 + 22 * 9);
  EXPECT_EQ(make("seq2seq", kPair, 0).name(), "seq2seq:1x256");
  EXPECT_EQ(make("seq2seq:1x8,dropout=0.5", kPair, 0).name(), "seq2seq:1x8,dropout=0.5");
  const DataInput without[] = {kPair[0], kPair[2]};
  EXPECT_EQ(make("seq2seq:1x8", without, 0).output_shape(), Shape({5, 22}));
}

TEST(Seq2Seq, RejectsOtherInputsAndOptions) {
  EXPECT_EQ(input_error_of([] { make("seq2seq", std::span(kPair).last(2), 0); }),
            "[seq2seq] expected source [S] and tokens [T] of vocabularies, and optionally "
            "source_segments [S], as in pairs of texts (--data text:FILE:source=A,target=B), got "
            "source_segments [7], tokens [5]");
  EXPECT_THAT(input_error_of([] { make("seq2seq", {7, 3}, 0); }), HasSubstr("got features [7, 3]"));
  const char* sizes = "expected LAYERSxUNITS in whole numbers above 0, got \"seq2seq:";
  expect_refusals(kPair, {{"seq2seq:2", sizes},
                          {"seq2seq:0x8", sizes},
                          {"seq2seq:1x8x2", sizes},
                          {"seq2seq:1x8,dropout=1", "expected dropout to be below 1"},
                          {"seq2seq:1x8,heads=2", "got \"heads\""},
                          {"seq2seq:1x8,dropout=0.1,dropout=0.2", "expected dropout= once"}});
}

TEST(Caption, ReadsTheImageBeforeTheTokens) {
  const Network network = make("caption:8", kCaptions, 20);
  EXPECT_EQ(network.name(), "caption:8");
  ASSERT_EQ(network.inputs().size(), 2u);
  network.check_complete();
  EXPECT_EQ(network.output_shape(), Shape({6, 20}));
  EXPECT_EQ(shape_of(network, "encoder.linear"), Shape({8}));
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "decoder.lstm"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "cropping1d"), Shape({6, 8}));
  const std::size_t cnn = make("cnn:features", {32, 32, 3}, 0).parameters().element_count();
  EXPECT_EQ(network.parameters().element_count(),
            cnn + (128u + 1 + 20) * 8 + 8 * 8 * 8 + 4 * 8 + 9 * 20);
}

TEST(Caption, KeepsTheNamesOfItsCnn) {
  for (const auto& [name, features] : {std::pair{"mobilenet_v2:0.5", 1280}, {"resnet18", 512}}) {
    const std::string whole = fmt::format("caption:16,dropout=0.3,cnn={}", quote_spec(name));
    const Network network = make(whole, kCaptions, 20);
    EXPECT_EQ(network.name(), whole);
    const Network cnn = make(features_name(name), {32, 32, 3}, 0);
    EXPECT_EQ(cnn.output_shape(), Shape({features}));
    for (const auto& entry : cnn.parameters().entries())
      EXPECT_NE(network.parameters().find(entry.name), nullptr) << entry.name;
    EXPECT_EQ(network.buffers().element_count(), cnn.buffers().element_count());
    EXPECT_EQ(network.parameters().element_count(), cnn.parameters().element_count() +
                                                        (features + 1u + 20) * 16 + 8 * 16 * 16 +
                                                        4 * 16 + 17 * 20);
    EXPECT_EQ(std::ranges::count(network.nodes(), "dropout",
                                 [](const model::Node& node) { return node.layer->kind(); }),
              2 + std::ranges::count(cnn.nodes(), "dropout",
                                     [](const model::Node& node) { return node.layer->kind(); }));
  }
}

TEST(Caption, ChoosesItsCnnByTheImageByDefault) {
  DataInput inputs[] = {kCaptions[1], {{.name = "photo", .shape = {65, 65, 3}}}};
  const Network network = make("caption:8", inputs, 20);
  network.check_complete();
  EXPECT_EQ(shape_of(network, "conv1"), Shape({33, 33, 64})) << "resnet18, of the second input";
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({7, 8}));
  inputs[1].input.shape = {64, 64, 3};
  EXPECT_EQ(shape_of(make("caption:8", inputs, 20), "dense"), Shape({128})) << "cnn";
}

TEST(Caption, RejectsOtherInputsAndOptions) {
  const std::string expected =
      "[caption] expected an image [height, width, channels], and tokens of a vocabulary, one "
      "int32 for each position of its caption, got ";
  EXPECT_EQ(input_error_of([&] { make("caption", kTokens, 65); }),
            expected + "tokens [8], segments [8]");
  EXPECT_EQ(input_error_of([&] {
              make("caption", {28, 28, 1}, 10);
            }),
            expected + "features [28, 28, 1]");
  const DataInput unknown[] = {kCaptions[0],
                               {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 0}};
  EXPECT_EQ(input_error_of([&] { make("caption", unknown, 20); }),
            expected + "image [32, 32, 3], tokens [6]");
  expect_refusals(kCaptions, {{"caption:0", "expected WIDTH in whole numbers above 0"},
                              {"caption:8x8", "expected WIDTH in whole numbers above 0"},
                              {"caption:8,dropout=1", "expected dropout to be below 1"},
                              {"caption:8,cnn=", "expected cnn=VALUE"},
                              {"caption:8,cnn=mlp:8", "quotes around one with : or ="},
                              {"caption:8,9", "got \"9\""}});
  EXPECT_THAT(input_error_of([&] { make("caption:8,cnn=resnet-18", kCaptions, 20); }),
              HasSubstr("(did you mean resnet18?)"));
}

TEST(Gpt, HasTheSizeOfGpt2) {
  const DataInput words[] = {
      {{.name = "tokens", .shape = {1024}, .type = ElementType::int32}, 50257}};
  const Network network = make("gpt:12x768", words, 50257);
  EXPECT_EQ(network.parameters().element_count(), 124'439'808u);
  EXPECT_EQ(network.output_shape(), Shape({1024, 50257}));
  EXPECT_EQ(shape_of(network, "h.11.attn.c_attn"), Shape({1024, 3 * 768}));
  EXPECT_EQ(shape_of(network, "h.11.mlp.c_fc"), Shape({1024, 4 * 768}));
  EXPECT_EQ(shape_of(network, "h.12.ln_1"), Shape());
}

TEST(Gpt, HasTheRequestedSizes) {
  constexpr std::size_t kVocabulary = 65;
  for (const auto& [name, layers, width] : {std::tuple{"gpt:2x32", 2u, 32u},
                                            {"gpt:3x48x6", 3u, 48u},
                                            {"gpt:1x200,dropout=0.1", 1u, 200u}}) {
    const Network network = make(name, std::span(kTokens).first(1), 65);
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(network.parameters().element_count(),
              (kVocabulary + 8) * width + layers * (12 * width * width + 13 * width) + 2 * width);
    EXPECT_EQ(network.output_shape(), Shape({8, kVocabulary}));
  }
  const Network network = make("gpt:1x32,dropout=0.25", std::span(kTokens).first(1), 65);
  EXPECT_EQ(std::ranges::count(network.nodes(), "dropout",
                               [](const model::Node& node) { return node.layer->kind(); }),
            3);
}

TEST(Gpt, HasGatesIfRequested) {
  constexpr std::size_t kVocabulary = 65;
  for (const auto& [name, layers, width, units] :
       {std::tuple{"gpt:2x32,ffn=swiglu", 2u, 32u, 88u},
        {"gpt:1x48x6,dropout=0.1,ffn=swiglu", 1u, 48u, 128u}}) {
    const Network network = make(name, std::span(kTokens).first(1), 65);
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(shape_of(network, "h.0.mlp.c_gate"), Shape({8, units}));
    EXPECT_EQ(shape_of(network, "h.0.mlp.c_fc"), Shape({8, units}));
    EXPECT_EQ(network.parameters().element_count(),
              (kVocabulary + 8) * width +
                  layers * (4 * width * width + 9 * width + 3 * width * units + 2 * units) +
                  2 * width);
    const auto kinds = [&](const char* kind) {
      return std::ranges::count(network.nodes(), kind,
                                [](const model::Node& node) { return node.layer->kind(); });
    };
    EXPECT_EQ(kinds("silu"), layers);
    EXPECT_EQ(kinds("multiply"), layers);
    EXPECT_EQ(kinds("gelu"), 0);
  }
  EXPECT_EQ(make("gpt:2x32,ffn=gelu", std::span(kTokens).first(1), 65).name(), "gpt:2x32");
}

TEST(Gpt, IsInitializedLikeGpt2) {
  const Network network = make("gpt:8x32", std::span(kTokens).first(1), 65);
  const auto deviation = [&](const char* name) {
    const Initializer& initializer = network.parameters().find(name)->initializer;
    EXPECT_EQ(initializer.kind, Initializer::Kind::normal) << name;
    return initializer.value;
  };
  for (const char* name :
       {"wte/embeddings", "wpe/embeddings", "h.7.attn.c_attn/kernel", "h.7.mlp.c_fc/kernel"})
    EXPECT_EQ(deviation(name), 0.02f) << name;
  for (const char* name : {"h.7.attn.c_proj/kernel", "h.7.mlp.c_proj/kernel"})
    EXPECT_FLOAT_EQ(deviation(name), 0.005f) << name;  // 0.02 / sqrt(2 * 8)
}

TEST(Transformers, AttendWithinSegmentsIfTheDataHaveSome) {
  for (const char* name : {"gpt:2x32", "bert:2x32", "minilm:2x32"})
    for (const std::size_t count : {1, 2}) {
      const Network network = make(name, std::span(kTokens).first(count), 3);
      network.check_complete();
      const auto attention = std::ranges::find(network.nodes(), "attention", &model::Node::name);
      ASSERT_NE(attention, network.nodes().end());
      EXPECT_EQ(attention->inputs.back() == network.input(kTokens[count - 1].input.name),
                count == 2)
          << name;
    }
}

TEST(Transformers, RejectOtherInputsAndOptions) {
  for (const std::string kind : {"gpt", "bert", "minilm"}) {
    EXPECT_EQ(input_error_of([&] {
                make(kind, {28, 28, 1}, 10);
              }),
              "[" + kind +
                  "] expected tokens of a vocabulary, one int32 for each position of a text, and "
                  "optionally the segments of the same positions, got features [28, 28, 1]");
    for (const char* sizes : {":4", ":4x", ":0x32", ":4x32x", ":4x32x2x2", ":ax32"})
      expect_refusals(kTokens,
                      {{kind + sizes, "expected LAYERSxWIDTH[xHEADS] in whole numbers above 0"}});
    expect_refusals(kTokens,
                    {{kind + ":4x32,dropout=1", "expected dropout to be below 1"},
                     {kind + ":4x32,dropout=", "expected dropout=VALUE"},
                     {kind + ":4x32,rate=0", "got \"rate\""},
                     {kind + ":4x32,patch=4", "got \"patch\""},
                     {kind + ":4x32,ffn=relu",
                      kind == "gpt" ? "[model: ffn] expected gelu or swiglu" : "got \"ffn\""},
                     {kind + ":4x32,dropout=0.1,dropout=0.1", "expected dropout= once"}});
    EXPECT_THAT(input_error_of([&] { make(kind + ":1x32x5", kTokens, 3); }),
                HasSubstr("5 heads of the same size"));
  }
}

TEST(Bert, IsAClassifierWithTheNamesOfHuggingFace) {
  const Network network = make("bert:2x32x4", kTokens, 3);
  EXPECT_EQ(network.name(), "bert:2x32x4");
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(network.parameters().element_count(),
            (65u + 8 + 2 + 2) * 32 + 2 * (12u * 32 * 32 + 13 * 32) + 32 * 32 + 32 + 33 * 3);
  EXPECT_EQ(shape_of(network, "encoder.layer.1.attention.self.value"), Shape({8, 32}));
  EXPECT_EQ(shape_of(network, "encoder.layer.1.output.LayerNorm"), Shape({8, 32}));
  EXPECT_EQ(shape_of(network, "pooler.dense"), Shape({32}));
  const Network features = make("bert:2x32x4,features", kTokens, 0);
  EXPECT_EQ(features.inputs().size(), 2u);
  EXPECT_EQ(features.output_shape(), Shape({32}));
}

TEST(MiniLm, HasTheWeightsOfAllMiniLmL6) {
  const DataInput words[] = {
      {{.name = "tokens", .shape = {128}, .type = ElementType::int32}, 30522},
      {{.name = "segments", .shape = {128}, .type = ElementType::int32}, 0}};
  const Network network = make("minilm", words, 2);
  EXPECT_EQ(network.name(), "minilm:6x384");
  EXPECT_EQ(network.parameters().element_count(),
            (30522u + 512 + 2 + 2) * 384 + 6 * (12u * 384 * 384 + 13 * 384) + 385 * 2);
  EXPECT_EQ(network.parameters().find("embeddings.token_type_embeddings/embeddings")->shape,
            Shape({2, 384}));
  EXPECT_EQ(network.parameters().find("embeddings.position_embeddings/embeddings")->shape,
            Shape({512, 384}));
  EXPECT_THAT(model::network_to_json(network).value().dump(), HasSubstr(R"("heads":12,)"));
  EXPECT_EQ(make("minilm:features", words, 0).output_shape(), Shape({384}));
  const DataInput longer{{.name = "tokens", .shape = {513}, .type = ElementType::int32}, 65};
  EXPECT_THAT(input_error_of([&] { make("minilm:1x32", std::span(&longer, 1), 2); }),
              HasSubstr("expected at least 513 rows, one for each position, got 512"));
}

}  // namespace
}  // namespace lockstep::inline v0::zoo
