#include "lockstep/model/zoo/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::zoo {
namespace {

using model::Network;
using model::NodeId;
using model::Shape;

constexpr std::string_view kWideDeep = "wide_deep";
constexpr std::string_view kLstm = "lstm";
constexpr std::string_view kGpt = "gpt";
constexpr std::string_view kBert = "bert";
constexpr std::string_view kMiniLmName = "minilm";
constexpr std::string_view kSeq2Seq = "seq2seq";
constexpr std::string_view kVit = "vit";
constexpr std::string_view kCaption = "caption";

struct Recipe {
  std::string_view name;
  Network (*make)(Shape input, std::int64_t classes);  ///< null: it reads several inputs
};

const std::array<Recipe, 18> kRecipes = {{
    {"linear", [](Shape input, std::int64_t classes) { return linear(std::move(input), classes); }},
    {"mlp", [](Shape input, std::int64_t classes) { return mlp(std::move(input), classes); }},
    {"cnn", [](Shape input, std::int64_t classes) { return cnn(std::move(input), classes); }},
    {"fast_cifar",
     [](Shape input, std::int64_t classes) { return fast_cifar(std::move(input), classes); }},
    {"resnet18",
     [](Shape input, std::int64_t classes) { return resnet18(std::move(input), classes); }},
    {"resnet34",
     [](Shape input, std::int64_t classes) { return resnet34(std::move(input), classes); }},
    {"resnet50",
     [](Shape input, std::int64_t classes) { return resnet50(std::move(input), classes); }},
    {"resnet101",
     [](Shape input, std::int64_t classes) { return resnet101(std::move(input), classes); }},
    {"resnet152",
     [](Shape input, std::int64_t classes) { return resnet152(std::move(input), classes); }},
    {"mobilenet_v2",
     [](Shape input, std::int64_t classes) { return mobilenet_v2(std::move(input), classes); }},
    {kWideDeep, nullptr},
    {kLstm, nullptr},
    {kGpt, nullptr},
    {kBert, nullptr},
    {kMiniLmName, nullptr},
    {kSeq2Seq, nullptr},
    {kCaption, nullptr},
    {kVit, [](Shape input, std::int64_t classes) { return vit(std::move(input), classes); }},
}};

constexpr std::string_view kSizedMlp = "mlp:";
constexpr std::string_view kFeatures = ":features";
constexpr std::string_view kSizedMobileNet = "mobilenet_v2:";

/// Parses the sizes in "mlp:10,10".
std::vector<std::int64_t> hidden_sizes(std::string_view name) {
  std::vector<std::int64_t> sizes;
  const char* const end = name.data() + name.size();
  for (const char* begin = name.data() + kSizedMlp.size();; ++begin) {
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(begin, end, size);
    const bool ends_here = stop == end || *stop == ',';
    if (error != std::errc() || !ends_here || size < 1)
      throw Error(ErrorCategory::input, "model",
                  "expected the sizes of hidden layers, such as mlp:128,128",
                  fmt::format("got \"{}\"", name));
    sizes.push_back(size);
    if (stop == end) return sizes;
    begin = stop;
  }
}

/// Parses the width in "mobilenet_v2:0.5".
double width_of(std::string_view name) {
  constexpr double kMaxWidth = 16;
  const auto width = parse_number<double>(name.substr(kSizedMobileNet.size()));
  if (!width || !(*width > 0 && *width <= kMaxWidth))
    throw Error(ErrorCategory::input, "model",
                fmt::format("expected a factor on the number of filters, above 0 and up to {}, "
                            "such as mobilenet_v2:0.5",
                            kMaxWidth),
                fmt::format("got \"{}\"", name));
  return *width;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// A size in `name`, of which `expected` says what it may be.
std::int64_t size_in(std::string_view text, std::string_view name, std::string_view expected) {
  const auto size = parse_number<std::int64_t>(text);
  if (!size || *size < 1)
    throw Error(ErrorCategory::input, "model", expected, fmt::format("got \"{}\"", name));
  return *size;
}

constexpr std::string_view kEmbedding = "embedding=";

/// Parses what follows the network's name in "wide_deep:256x128,embedding=16"; the sizes or the
/// embedding may be absent.
WideDeepOptions wide_deep_options(std::string_view name) {
  constexpr std::string_view kExpected =
      "expected sizes of hidden layers and of embeddings, such as wide_deep:256x128,embedding=16";
  WideDeepOptions options;
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return options;
  std::string_view sizes = name.substr(colon + 1);
  const std::size_t place = sizes.find(kEmbedding);
  if (place != std::string_view::npos) {
    options.embedding = size_in(sizes.substr(place + kEmbedding.size()), name, kExpected);
    sizes = sizes.substr(0, place);
    if (sizes.empty()) return options;
    if (!sizes.ends_with(','))
      throw Error(ErrorCategory::input, "model", kExpected, fmt::format("got \"{}\"", name));
    sizes.remove_suffix(1);
  }
  options.hidden.clear();
  for (const std::string_view size : split(sizes, 'x'))
    options.hidden.push_back(size_in(size, name, kExpected));
  return options;
}

/// Parses the options in "lstm:2x256,embedding=64,return_sequences", each of which may be absent.
LstmOptions lstm_options(std::string_view name) {
  constexpr std::string_view kExpected =
      "expected a number of layers, their units and the dimension of the embedding, such as "
      "lstm:2x256,embedding=64, and optionally return_sequences";
  LstmOptions options;
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return options;
  const auto settings = split(name.substr(colon + 1), ',');
  for (const std::string_view& setting : settings) {
    const auto sizes = split(setting, 'x');
    if (setting == "return_sequences") {
      options.return_sequences = true;
    } else if (setting.starts_with(kEmbedding)) {
      options.embedding = size_in(setting.substr(kEmbedding.size()), name, kExpected);
    } else if (&setting == &settings.front() && sizes.size() == 2) {
      options.layers = size_in(sizes[0], name, kExpected);
      options.units = size_in(sizes[1], name, kExpected);
    } else {
      size_in("", name, kExpected);  // refuses it
    }
  }
  return options;
}

/// Parses the options in "gpt:4x128x2,dropout=0.1,ffn=swiglu"; all but the first two numbers may be
/// absent.
TransformerOptions transformer_options(std::string_view name) {
  constexpr std::string_view kDropout = "dropout=";
  constexpr std::string_view kPatch = "patch=";
  const std::size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  if (colon == std::string_view::npos) return kind == kMiniLmName ? kMiniLm : TransformerOptions();
  const bool has_patch = kind == kVit;
  const bool has_feed_forward = kind == kGpt;
  const auto count = [&](std::string_view text) -> std::int64_t {
    const auto number = parse_number<std::int32_t>(text);
    if (number && *number > 0) return *number;
    throw Error(ErrorCategory::input, "model",
                fmt::format("expected the number of layers and the width, such as {0}:4x128, and "
                            "optionally the number of heads{1} and a dropout below 1, such as "
                            "{0}:4x128x2{2},dropout=0.1",
                            kind,
                            has_patch          ? ", the side of the squares"
                            : has_feed_forward ? ", ffn=gelu or ffn=swiglu"
                                               : "",
                            has_patch          ? ",patch=4"
                            : has_feed_forward ? ",ffn=swiglu"
                                               : ""),
                fmt::format("got \"{}\"", name));
  };
  const auto refuse = [&] { count(""); };
  TransformerOptions options;
  const auto settings = split(name.substr(colon + 1), ',');
  const auto sizes = split(settings.front(), 'x');
  if (sizes.size() < 2 || sizes.size() > 3) refuse();
  options.layers = count(sizes[0]);
  options.width = count(sizes[1]);
  if (sizes.size() == 3) options.heads = count(sizes[2]);
  std::set<std::string_view> seen;
  for (const std::string_view setting : std::span(settings).subspan(1)) {
    if (!seen.insert(setting.substr(0, setting.find('='))).second) refuse();
    if (setting.starts_with(kDropout)) {
      options.dropout = parse_number<float>(setting.substr(kDropout.size())).value_or(-1);
      if (!(options.dropout >= 0 && options.dropout < 1)) refuse();
    } else if (has_patch && setting.starts_with(kPatch)) {
      options.patch = count(setting.substr(kPatch.size()));
    } else if (has_feed_forward && setting == "ffn=gelu") {
      options.feed_forward = FeedForward::gelu;
    } else if (has_feed_forward && setting == "ffn=swiglu") {
      options.feed_forward = FeedForward::swiglu;
    } else {
      refuse();
    }
  }
  return options;
}

/// Parses the options in "caption:256,dropout=0.3,cnn=resnet18"; each may be absent, and what
/// follows "cnn=" is its whole name.
CaptionOptions caption_options(std::string_view name) {
  constexpr std::string_view kDropout = "dropout=";
  constexpr std::string_view kCnn = "cnn=";
  CaptionOptions options;
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return options;
  bool has_width = false;
  bool has_dropout = false;
  for (std::size_t begin = colon + 1; begin <= name.size();) {
    const std::string_view rest = name.substr(begin);
    const std::string_view setting = rest.substr(0, rest.find(','));
    bool is_known = false;
    begin += setting.size() + 1;
    if (rest.starts_with(kCnn)) {
      options.cnn = rest.substr(kCnn.size());
      is_known = !options.cnn.empty();
      begin = name.size() + 1;
    } else if (setting.starts_with(kDropout)) {
      options.dropout = parse_number<float>(setting.substr(kDropout.size())).value_or(-1);
      is_known = options.dropout >= 0 && options.dropout < 1 && !std::exchange(has_dropout, true);
    } else {
      options.width = parse_number<std::int32_t>(setting).value_or(0);
      is_known = options.width > 0 && !std::exchange(has_width, true);
    }
    if (!is_known)
      throw Error(ErrorCategory::input, "model",
                  "expected a width, a dropout below 1, or the name of a network of images at the "
                  "end, such as caption:256,dropout=0.3,cnn=resnet18",
                  fmt::format("got \"{}\"", name));
  }
  return options;
}

/// Parses the options in "seq2seq:2x256,embedding=128,dropout=0.1"; all but the sizes may be
/// absent.
Seq2SeqOptions seq2seq_options(std::string_view name) {
  constexpr std::string_view kDimension = "embedding=";
  constexpr std::string_view kDropout = "dropout=";
  Seq2SeqOptions options;
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return options;
  const auto count = [&](std::string_view text) -> std::int64_t {
    const auto number = parse_number<std::int32_t>(text);
    if (number && *number > 0) return *number;
    throw Error(ErrorCategory::input, "model",
                "expected the number of layers and their units, and optionally the dimension of "
                "the embeddings and a dropout below 1, such as "
                "seq2seq:2x256,embedding=128,dropout=0.1",
                fmt::format("got \"{}\"", name));
  };
  const auto settings = split(name.substr(colon + 1), ',');
  const auto sizes = split(settings.front(), 'x');
  if (sizes.size() != 2) count("");
  options.layers = count(sizes[0]);
  options.units = count(sizes[1]);
  std::set<std::string_view> seen;
  for (const std::string_view setting : std::span(settings).subspan(1)) {
    if (!seen.insert(setting.substr(0, setting.find('='))).second) count("");
    if (setting.starts_with(kDimension)) {
      options.embedding = count(setting.substr(kDimension.size()));
    } else if (setting.starts_with(kDropout)) {
      options.dropout = parse_number<float>(setting.substr(kDropout.size())).value_or(-1);
      if (!(options.dropout >= 0 && options.dropout < 1)) count("");
    } else {
      count("");
    }
  }
  return options;
}

}  // namespace

std::vector<std::string_view> names() {
  std::vector<std::string_view> result;
  for (const Recipe& recipe : kRecipes) result.push_back(recipe.name);
  return result;
}

Network features_of(const Network& network) {
  const auto nodes = network.nodes();
  const auto has_parameters = [](const model::Node& node) { return !node.parameters.empty(); };
  std::size_t head = nodes.size();
  while (head > 0 && !has_parameters(nodes[head - 1])) --head;
  const auto kept = nodes.first(head > 0 ? head - 1 : 0);
  if (std::ranges::none_of(kept, has_parameters) ||
      nodes[head - 1].inputs != std::vector<NodeId>{static_cast<NodeId>(kept.size()) - 1})
    throw Error(ErrorCategory::input, "features",
                "expected a network of layers with parameters one after another, the last of which "
                "is its head",
                fmt::format("got {}", network.name()));
  Network features(network.inputs(), fmt::format("{}{}", network.name(), kFeatures));
  for (const model::Node& node : kept) features.add_node(node.layer, node.inputs, node.name);
  return features;
}

Network make(std::string_view name, std::span<const DataInput> inputs, std::int64_t classes) {
  if (name.ends_with(kFeatures)) {
    name.remove_suffix(kFeatures.size());
    return features_of(make(name, inputs, 1));
  }
  const std::string_view kind = name.substr(0, name.find(':'));
  if (kind == kWideDeep) return wide_deep(inputs, classes, wide_deep_options(name));
  if (kind == kGpt) return gpt(inputs, transformer_options(name));
  if (kind == kBert) return bert(inputs, classes, transformer_options(name));
  if (kind == kMiniLmName) return minilm(inputs, classes, transformer_options(name));
  if (kind == kSeq2Seq) return seq2seq(inputs, seq2seq_options(name));
  if (kind == kCaption) return caption(inputs, caption_options(name));
  if (inputs.size() == 1 && inputs.front().input.type == ElementType::float32)
    return make(name, inputs.front().input.shape, classes);
  if (kind == kLstm) return lstm(inputs, classes, lstm_options(name));
  std::vector<std::string> given;
  for (const DataInput& input : inputs) given.push_back(input.input.name);
  throw Error(ErrorCategory::input, "model",
              "expected gpt, bert, minilm, lstm, seq2seq, caption, wide_deep or a FILE.json for "
              "data with several inputs, or with indices",
              fmt::format("got \"{}\" for {}", name, fmt::join(given, ", ")));
}

Network make(std::string_view name, Shape input, std::int64_t classes) {
  if (name.ends_with(kFeatures)) {
    name.remove_suffix(kFeatures.size());
    return features_of(make(name, std::move(input), 1));
  }
  const std::string_view kind = name.substr(0, name.find(':'));
  if (kind == kWideDeep || kind == kLstm || kind == kGpt || kind == kBert || kind == kMiniLmName ||
      kind == kSeq2Seq || kind == kCaption) {
    const std::array inputs = {DataInput{{.name = "features", .shape = std::move(input)}}};
    return kind == kLstm ? lstm(inputs, classes, lstm_options(name)) : make(name, inputs, classes);
  }
  if (kind == kVit) return vit(std::move(input), classes, transformer_options(name));
  if (name.starts_with(kSizedMlp)) return mlp(std::move(input), classes, hidden_sizes(name));
  if (name.starts_with(kSizedMobileNet))
    return mobilenet_v2(std::move(input), classes, {.width = width_of(name)});
  const auto* const recipe = std::ranges::find(kRecipes, name, &Recipe::name);
  if (recipe != kRecipes.end()) return recipe->make(std::move(input), classes);
  const std::vector<std::string_view> known = names();
  if (std::ranges::find(known, kind) != known.end())
    throw Error(ErrorCategory::input, "model",
                fmt::format("expected {0} alone: {0} has no settings", kind),
                fmt::format("got \"{}\"", name));
  throw Error(ErrorCategory::input, "model",
              fmt::format("expected one of {}, or a FILE.json", list_names(known)),
              got_name(kind, known));
}

}  // namespace lockstep::zoo
