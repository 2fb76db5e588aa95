#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {

using model::Network;
using model::NodeId;

namespace {

// The inputs by name; null: absent.
struct PairInputs {
  const DataInput* source = nullptr;
  const DataInput* source_segments = nullptr;
  const DataInput* tokens = nullptr;
};

PairInputs pair_inputs(std::span<const DataInput> inputs) {
  PairInputs pair;
  std::string actual;
  bool fit = true;
  for (const DataInput& one : inputs) {
    const model::NetworkInput& input = one.input;
    actual += fmt::format("{}{} {}", actual.empty() ? "" : ", ", input.name,
                          model::to_string(input.shape));
    fit = fit && input.type == ElementType::int32 && input.shape.size() == 1;
    if (input.name == "source") pair.source = &one;
    if (input.name == "source_segments") pair.source_segments = &one;
    if (input.name == "tokens") pair.tokens = &one;
  }
  const bool has_segments = pair.source_segments != nullptr;
  fit = fit && pair.source != nullptr && pair.tokens != nullptr && pair.source->categories > 0 &&
        pair.tokens->categories > 0 && inputs.size() == (has_segments ? 3u : 2u) &&
        (!has_segments || pair.source_segments->input.shape == pair.source->input.shape);
  if (!fit)
    throw Error(ErrorCategory::input, "seq2seq",
                "expected source [S] and tokens [T] of vocabularies, and optionally "
                "source_segments [S], as in pairs of texts (--data text:FILE:source=A,target=B)",
                fmt::format("got {}", actual.empty() ? "no inputs" : actual));
  return pair;
}

std::string seq2seq_name(const Seq2SeqOptions& options) {
  std::string name = fmt::format("seq2seq:{}x{}", options.layers, options.units);
  if (options.embedding > 0) name += fmt::format(",embedding={}", options.embedding);
  if (options.dropout > 0) name += fmt::format(",dropout={}", options.dropout);
  return name;
}

}  // namespace

Network seq2seq(std::span<const DataInput> inputs, const Seq2SeqOptions& options) {
  if (options.layers < 1 || options.units < 1)
    throw Error(ErrorCategory::input, "seq2seq", "expected at least one layer and one unit",
                fmt::format("got {} and {}", options.layers, options.units));
  const PairInputs pair = pair_inputs(inputs);
  const std::int64_t units = options.units;
  const std::int64_t dimension = options.embedding > 0 ? options.embedding : units;
  std::vector<model::NetworkInput> read;
  for (const DataInput& input : inputs) read.push_back(input.input);
  Network network(std::move(read), seq2seq_name(options));
  std::vector<NodeId> segments;
  if (pair.source_segments != nullptr) segments = {network.input("source_segments")};
  const auto dropout = [&](NodeId x) {
    return options.dropout > 0 ? network.add(model::Dropout({.rate = options.dropout}), {x}) : x;
  };
  const auto embed = [&](const DataInput& of, const std::string& name) {
    return dropout(
        network.add(model::Embedding({.vocabulary = of.categories, .dimension = dimension}),
                    {network.input(of.input.name)}, name));
  };
  const auto dense = [&](std::int64_t size, NodeId x, const std::string& name, bool bias = true) {
    return network.add(model::Dense({.units = size, .use_bias = bias}), {x}, name);
  };
  const auto with_segments = [&](std::vector<NodeId> of) {
    of.insert(of.end(), segments.begin(), segments.end());
    return of;
  };

  NodeId encoded = embed(*pair.source, "encoder.embedding");
  for (std::int64_t i = 0; i < options.layers; ++i)
    encoded = network.add(
        model::LSTM({.units = units, .return_sequences = true, .segments = !segments.empty()}),
        with_segments({encoded}), fmt::format("encoder.lstm.{}", i));
  const NodeId mean = network.add(model::GlobalAveragePooling1D(), with_segments({encoded}));

  NodeId decoded = embed(*pair.tokens, "decoder.embedding");
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const NodeId state = dense(2 * units, mean, fmt::format("decoder.initial.{}", i));
    decoded = network.add(
        model::LSTM({.units = units, .return_sequences = true, .initial_state = true}),
        {decoded, network.add(model::Tanh(), {state})}, fmt::format("decoder.lstm.{}", i));
  }
  const NodeId query = dense(units, decoded, "attention.query", false);
  const NodeId key = dense(units, encoded, "attention.key");
  const NodeId context = network.add(model::AdditiveAttention(),
                                     with_segments({query, key, encoded}), "attention.weights");
  const NodeId both = network.add(model::Concatenate({.axis = -1}), {context, decoded});
  const NodeId combined =
      dropout(network.add(model::Tanh(), {dense(units, both, "decoder.combine", false)}));
  dense(pair.tokens->categories, combined, "decoder.output");
  return network;
}

}  // namespace lockstep::inline v0::zoo
