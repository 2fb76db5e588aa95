#include "lockstep/model/zoo/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::Network;
using model::NodeId;
using model::Shape;

constexpr std::string_view kFeatures = "features";
constexpr std::string_view kMlp = "mlp";
constexpr std::string_view kMobileNet = "mobilenet_v2";
constexpr std::string_view kWideDeep = "wide_deep";
constexpr std::string_view kLstm = "lstm";
constexpr std::string_view kGpt = "gpt";
constexpr std::string_view kBert = "bert";
constexpr std::string_view kMiniLmName = "minilm";
constexpr std::string_view kSeq2Seq = "seq2seq";
constexpr std::string_view kVit = "vit";
constexpr std::string_view kCaption = "caption";

/// A network with one float input, with its default options.
template <auto Make>
Network usual(Shape input, std::int64_t classes) {
  return Make(std::move(input), classes, {});
}

struct Recipe {
  std::string_view name;
  Network (*make)(Shape input, std::int64_t classes);  ///< null: has options or other inputs
};

constexpr std::array<Recipe, 18> kRecipes = {{
    {"linear", linear},
    {kMlp, nullptr},
    {"cnn", cnn},
    {"fast_cifar", usual<fast_cifar>},
    {"resnet18", usual<resnet18>},
    {"resnet34", usual<resnet34>},
    {"resnet50", usual<resnet50>},
    {"resnet101", usual<resnet101>},
    {"resnet152", usual<resnet152>},
    {kMobileNet, nullptr},
    {kWideDeep, nullptr},
    {kLstm, nullptr},
    {kGpt, nullptr},
    {kBert, nullptr},
    {kMiniLmName, nullptr},
    {kSeq2Seq, nullptr},
    {kCaption, nullptr},
    {kVit, nullptr},
}};

constexpr auto kFeedForwards =
    enum_names<FeedForward>({{FeedForward::gelu, "gelu"}, {FeedForward::swiglu, "swiglu"}});

/// Reads the next positional value, of a form such as "LAYERSxUNITS" with at least `least` numbers.
void read_sizes(Spec& spec, std::string_view form, std::size_t least,
                std::initializer_list<std::int64_t*> places) {
  const auto text = spec.next(form);
  if (!text) return;
  const auto sizes = parse_extents(*text);
  if (!sizes || sizes->size() < least || sizes->size() > places.size())
    spec.refuse("", fmt::format("expected {} in whole numbers above 0", form));
  for (std::size_t i = 0; i < sizes->size(); ++i) *places.begin()[i] = (*sizes)[i];
}

void read_dropout(Spec& spec, float& dropout) {
  spec.read("dropout", dropout, 0);
  if (dropout >= 1) spec.refuse("dropout", "expected dropout to be below 1");
}

/// The network of "mlp:10,10,dropout=0.2".
Network mlp_of(Spec& spec, const Shape& input, std::int64_t classes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 0;; sizes.push_back(std::exchange(size, 0))) {
    read_sizes(spec, "UNITS", 1, {&size});
    if (size == 0) break;
  }
  float dropout = 0;
  read_dropout(spec, dropout);
  spec.finish();
  if (sizes.empty()) sizes = {128, 128};
  return mlp(input, classes, sizes, dropout);
}

/// The options of "mobilenet_v2:0.5".
MobileNetOptions mobile_net_options(Spec& spec) {
  constexpr double kMaxWidth = 16;
  MobileNetOptions options;
  if (const auto text = spec.next("FACTOR"))
    options.width = parse_number<double>(*text).value_or(0);
  if (!(options.width > 0 && options.width <= kMaxWidth))
    spec.refuse("", fmt::format("expected a factor on the number of filters, above 0 and up to {}, "
                                "such as mobilenet_v2:0.5",
                                kMaxWidth));
  spec.finish();
  return options;
}

/// The options of "wide_deep:256x128,embedding=16".
WideDeepOptions wide_deep_options(Spec& spec) {
  WideDeepOptions options;
  if (const auto text = spec.next("UNITSxUNITS...")) {
    const auto hidden = parse_extents(*text);
    if (!hidden) spec.refuse("", "expected UNITSxUNITS... in whole numbers above 0");
    options.hidden = *hidden;
  }
  spec.read("embedding", options.embedding, 1);
  spec.finish();
  return options;
}

/// The options of "lstm:2x256,embedding=64,return_sequences".
LstmOptions lstm_options(Spec& spec) {
  LstmOptions options;
  options.return_sequences = spec.take("return_sequences");
  read_sizes(spec, "LAYERSxUNITS", 2, {&options.layers, &options.units});
  spec.read("embedding", options.embedding, 1);
  spec.finish();
  return options;
}

/// The options of "gpt:4x128x2,dropout=0.1,ffn=swiglu".
TransformerOptions transformer_options(Spec& spec) {
  TransformerOptions options = spec.head() == kMiniLmName ? kMiniLm : TransformerOptions();
  if (spec.head() == kVit) options.class_token = spec.take("class_token");
  read_sizes(spec, "LAYERSxWIDTH[xHEADS]", 2, {&options.layers, &options.width, &options.heads});
  read_dropout(spec, options.dropout);
  if (spec.head() == kVit) spec.read("patch", options.patch, 1);
  if (spec.head() == kGpt) spec.read("ffn", options.feed_forward, kFeedForwards);
  spec.finish();
  return options;
}

/// The options of "caption:256,dropout=0.3,cnn=resnet18".
CaptionOptions caption_options(Spec& spec) {
  CaptionOptions options;
  read_sizes(spec, "WIDTH", 1, {&options.width});
  read_dropout(spec, options.dropout);
  spec.read("cnn", options.cnn);
  spec.finish();
  return options;
}

/// The options of "seq2seq:2x256,embedding=128,dropout=0.1".
Seq2SeqOptions seq2seq_options(Spec& spec) {
  Seq2SeqOptions options;
  read_sizes(spec, "LAYERSxUNITS", 2, {&options.layers, &options.units});
  spec.read("embedding", options.embedding, 1);
  read_dropout(spec, options.dropout);
  spec.finish();
  return options;
}

/// The network that `spec` describes, ignoring "features".
Network network_of(Spec& spec, std::span<const DataInput> inputs, std::int64_t classes) {
  const std::string& kind = spec.head();
  if (kind == kWideDeep) return wide_deep(inputs, classes, wide_deep_options(spec));
  const bool is_plain = inputs.size() == 1 && inputs.front().input.type == ElementType::float32;
  if (kind == kLstm && !is_plain) return lstm(inputs, classes, lstm_options(spec));
  if (kind == kGpt) return gpt(inputs, transformer_options(spec));
  if (kind == kBert) return bert(inputs, classes, transformer_options(spec));
  if (kind == kMiniLmName) return minilm(inputs, classes, transformer_options(spec));
  if (kind == kSeq2Seq) return seq2seq(inputs, seq2seq_options(spec));
  if (kind == kCaption) return caption(inputs, caption_options(spec));
  if (!is_plain) {
    std::vector<std::string> actual;
    for (const DataInput& input : inputs) actual.push_back(input.input.name);
    throw Error(ErrorCategory::input, "model",
                "expected gpt, bert, minilm, lstm, seq2seq, caption, wide_deep or a FILE.json for "
                "data with several inputs, or with indices",
                fmt::format("got \"{}\" for {}", kind, fmt::join(actual, ", ")));
  }
  const Shape& input = inputs.front().input.shape;
  if (kind == kLstm)
    return lstm(std::array{DataInput{{.name = "features", .shape = input}}}, classes,
                lstm_options(spec));
  if (kind == kVit) return vit(input, classes, transformer_options(spec));
  if (kind == kMlp) return mlp_of(spec, input, classes);
  if (kind == kMobileNet) return mobilenet_v2(input, classes, mobile_net_options(spec));
  const auto* const recipe = std::ranges::find(kRecipes, kind, &Recipe::name);
  if (recipe == kRecipes.end())
    throw Error(ErrorCategory::input, "model",
                fmt::format("expected one of {}, or a FILE.json", list_names(names())),
                got_name(kind, names()));
  spec.finish();
  return recipe->make(input, classes);
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
  const char separator = network.name().find(':') == std::string::npos ? ':' : ',';
  Network features(network.inputs(), fmt::format("{}{}{}", network.name(), separator, kFeatures));
  for (const model::Node& node : kept) features.add_node(node.layer, node.inputs, node.name);
  return features;
}

Network make(std::string_view name, std::span<const DataInput> inputs, std::int64_t classes) {
  Spec spec = Spec::parse("model", name);
  if (spec.take(kFeatures)) return features_of(network_of(spec, inputs, 1));
  return network_of(spec, inputs, classes);
}

Network make(std::string_view name, Shape input, std::int64_t classes) {
  return make(name, std::array{DataInput{{.name = "features", .shape = std::move(input)}}},
              classes);
}

}  // namespace lockstep::inline v0::zoo
