#include "lockstep/model/zoo/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::zoo {
namespace {

using model::Network;
using model::NodeId;
using model::Shape;

enum class Block { basic, bottleneck };

constexpr std::int64_t kBottleneckExpansion = 4;
constexpr std::int64_t kLargestCifarInput = 64;

struct Design {
  const char* name;
  Block block;
  std::array<int, 4> blocks_per_stage;
};

// Adds the layers of a residual network; each function returns its last node.
class Builder {
 public:
  Builder(Network& network, const ResNetOptions& options) : network_(network), options_(options) {}

  NodeId stem(Stem form) {
    const bool imagenet = form == Stem::imagenet;
    convolve(model::kInput, "conv1", options_.width, imagenet ? 7 : 3, imagenet ? 2 : 1);
    normalize("bn1");
    const NodeId end = network_.add(model::ReLU());
    return imagenet ? network_.add(model::MaxPool2D(
                          {.pool = 3, .strides = 2, .padding = model::Padding::symmetric}))
                    : end;
  }

  NodeId basic_block(NodeId input, const std::string& name, std::int64_t filters,
                     std::int64_t stride) {
    convolve(input, name + ".conv1", filters, 3, stride);
    normalize(name + ".bn1");
    const NodeId middle = network_.add(model::ReLU());
    convolve(middle, name + ".conv2", filters, 3, 1);
    const NodeId residual = normalize(name + ".bn2", options_.zero_last_gamma);
    return join(residual, shortcut(input, name, filters, stride));
  }

  NodeId bottleneck_block(NodeId input, const std::string& name, std::int64_t filters,
                          std::int64_t stride) {
    convolve(input, name + ".conv1", filters, 1, 1);
    normalize(name + ".bn1");
    const NodeId reduced = network_.add(model::ReLU());
    convolve(reduced, name + ".conv2", filters, 3, stride);
    normalize(name + ".bn2");
    const NodeId middle = network_.add(model::ReLU());
    convolve(middle, name + ".conv3", kBottleneckExpansion * filters, 1, 1);
    const NodeId residual = normalize(name + ".bn3", options_.zero_last_gamma);
    return join(residual, shortcut(input, name, kBottleneckExpansion * filters, stride));
  }

 private:
  NodeId convolve(NodeId input, std::string name, std::int64_t filters, std::int64_t kernel,
                  std::int64_t stride) {
    return network_.add(model::Conv2D({.filters = filters,
                                       .kernel = kernel,
                                       .strides = stride,
                                       .padding = model::Padding::symmetric,
                                       .use_bias = false,
                                       .initializer = model::Initializer::Kind::he_normal}),
                        {input}, std::move(name));
  }

  NodeId normalize(std::string name, bool zero_gamma = false) {
    return network_.add(
        model::BatchNormalization(
            {.momentum = 0.9f, .epsilon = 1e-5f, .initial_gamma = zero_gamma ? 0.0f : 1.0f}),
        {network_.last()}, std::move(name));
  }

  // The block's input, or its projection if extents or channels change.
  NodeId shortcut(NodeId input, const std::string& name, std::int64_t filters,
                  std::int64_t stride) {
    if (stride == 1 && network_.shape(input).back() == filters) return input;
    convolve(input, name + ".downsample.0", filters, 1, stride);
    return normalize(name + ".downsample.1");
  }

  NodeId join(NodeId residual, NodeId shortcut) {
    network_.add(model::Add(), {residual, shortcut});
    return network_.add(model::ReLU());
  }

  Network& network_;
  const ResNetOptions& options_;
};

Network build(const Design& design, Shape input, std::int64_t classes,
              const ResNetOptions& options) {
  if (input.size() != 3)
    throw Error(ErrorCategory::input, design.name, "expected an input [height, width, channels]",
                fmt::format("got {}", model::to_string(input)));
  const Stem stem = options.stem.value_or(stem_for(input));
  Network network(std::move(input), design.name);
  Builder builder(network, options);
  NodeId end = builder.stem(stem);
  std::int64_t filters = options.width;
  for (std::size_t stage = 0; stage < design.blocks_per_stage.size(); ++stage, filters *= 2)
    for (int block = 0; block < design.blocks_per_stage[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      end = design.block == Block::basic ? builder.basic_block(end, name, filters, stride)
                                         : builder.bottleneck_block(end, name, filters, stride);
    }
  network.add(model::GlobalAveragePooling2D());
  network.add(model::Dense({.units = classes}), {network.last()}, "fc");
  return network;
}

}  // namespace

Stem stem_for(const Shape& input) {
  const bool is_small = input.size() == 3 && std::max(input[0], input[1]) <= kLargestCifarInput;
  return is_small ? Stem::cifar : Stem::imagenet;
}

Network resnet18(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet18", Block::basic, {2, 2, 2, 2}}, std::move(input), classes, options);
}

Network resnet34(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet34", Block::basic, {3, 4, 6, 3}}, std::move(input), classes, options);
}

Network resnet50(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet50", Block::bottleneck, {3, 4, 6, 3}}, std::move(input), classes, options);
}

Network resnet101(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet101", Block::bottleneck, {3, 4, 23, 3}}, std::move(input), classes, options);
}

Network resnet152(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet152", Block::bottleneck, {3, 8, 36, 3}}, std::move(input), classes, options);
}

namespace {

using model::Network;
using model::Shape;

constexpr std::int64_t kFirstFilters = 24;  // twice the number of values in a 2x2x3 patch, as for
                                            // whitening filters and their negatives

void convolve(Network& network, std::int64_t filters) {
  network.add(model::Conv2D({.filters = filters,
                             .kernel = 3,
                             .padding = model::Padding::symmetric,
                             .use_bias = false,
                             .initializer = model::Initializer::Kind::he_normal}));
}

void normalize_and_activate(Network& network) {
  network.add(model::BatchNormalization({.momentum = 0.6f, .epsilon = 1e-5f}));
  network.add(model::ReLU());
}

}  // namespace

Network fast_cifar(Shape input, std::int64_t classes, const FastCifarOptions& options) {
  Network network(std::move(input), "fast_cifar");
  network.add(model::Conv2D(
      {.filters = kFirstFilters, .kernel = 2, .initializer = model::Initializer::Kind::he_normal}));
  network.add(model::ReLU());
  for (const std::int64_t filters : {options.width, 4 * options.width, 4 * options.width}) {
    convolve(network, filters);
    network.add(model::MaxPool2D({.pool = 2}));
    normalize_and_activate(network);
    convolve(network, filters);
    normalize_and_activate(network);
  }
  const Shape& last = network.output_shape();
  network.add(model::MaxPool2D({.pool = {last[0], last[1]}}));
  network.add(model::Flatten());
  network.add(model::Dense({.units = classes}));
  return network;
}

namespace {

using model::Network;
using model::Shape;

constexpr std::string_view kWideDeep = "wide_deep";

struct Recipe {
  std::string_view name;
  Network (*make)(Shape input, std::int64_t classes);
};

const std::array<Recipe, 11> kRecipes = {{
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
    {kWideDeep, nullptr},  // it reads several inputs
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

/// Parses the options in "wide_deep:256x128,embedding=16"; either may be absent.
WideDeepOptions wide_deep_options(std::string_view name) {
  constexpr std::string_view kEmbedding = "embedding=";
  WideDeepOptions options;
  if (name == kWideDeep) return options;
  const auto size_in = [&](std::string_view text) {
    const auto size = parse_number<std::int64_t>(text);
    if (!size || *size < 1)
      throw Error(ErrorCategory::input, "model",
                  "expected sizes of hidden layers and of embeddings, such as "
                  "wide_deep:256x128,embedding=16",
                  fmt::format("got \"{}\"", name));
    return *size;
  };
  std::string_view sizes = name.substr(kWideDeep.size() + 1);
  const std::size_t place = sizes.find(kEmbedding);
  if (place != std::string_view::npos) {
    options.embedding = size_in(sizes.substr(place + kEmbedding.size()));
    sizes = sizes.substr(0, place);
    if (sizes.empty()) return options;
    if (sizes.ends_with(',')) sizes.remove_suffix(1);
  }
  options.hidden.clear();
  for (std::size_t end = 0; end != std::string_view::npos; sizes.remove_prefix(end + 1)) {
    end = sizes.find('x');
    options.hidden.push_back(size_in(sizes.substr(0, end)));
    if (end == std::string_view::npos) break;
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
  Network features(network.input_shape(), fmt::format("{}{}", network.name(), kFeatures));
  for (const model::Node& node : kept) features.add_node(node.layer, node.inputs, node.name);
  return features;
}

Network make(std::string_view name, std::span<const DataInput> inputs, std::int64_t classes) {
  if (name.substr(0, name.find(':')) == kWideDeep)
    return wide_deep(inputs, classes, wide_deep_options(name));
  if (inputs.size() == 1 && inputs.front().input.type == ElementType::float32)
    return make(name, inputs.front().input.shape, classes);
  std::vector<std::string> given;
  for (const DataInput& input : inputs) given.push_back(input.input.name);
  throw Error(ErrorCategory::input, "model",
              "expected wide_deep or a FILE.json for data with several inputs, or with indices",
              fmt::format("got \"{}\" for {}", name, fmt::join(given, ", ")));
}

Network make(std::string_view name, Shape input, std::int64_t classes) {
  if (name.ends_with(kFeatures)) {
    name.remove_suffix(kFeatures.size());
    return features_of(make(name, std::move(input), 1));
  }
  if (name.substr(0, name.find(':')) == kWideDeep)
    return make(name, std::array{DataInput{{.name = "features", .shape = std::move(input)}}},
                classes);
  if (name.starts_with(kSizedMlp)) return mlp(std::move(input), classes, hidden_sizes(name));
  if (name.starts_with(kSizedMobileNet))
    return mobilenet_v2(std::move(input), classes, {.width = width_of(name)});
  const auto* const recipe = std::ranges::find(kRecipes, name, &Recipe::name);
  if (recipe != kRecipes.end()) return recipe->make(std::move(input), classes);
  const std::vector<std::string_view> known = names();
  throw Error(ErrorCategory::input, "model",
              fmt::format("expected one of {}, or a FILE.json", list_names(known)),
              got_name(name.substr(0, name.find(':')), known));
}

}  // namespace lockstep::zoo
