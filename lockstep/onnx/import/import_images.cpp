// Imports convolutions, poolings and batch normalization.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/derived.h"
#include "lockstep/model/layers/pooling/pooling.h"
#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"
#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Padding;
using model::Shape;

/// A window of a convolution or a pooling over 1 or 2 axes.
struct Window {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> dilations;
  std::vector<std::int64_t> begins;  ///< zeros before
  std::vector<std::int64_t> ends;    ///< zeros after

  /// The elements of axis k from the first to the last of a window.
  std::int64_t span(std::size_t k) const { return (kernel[k] - 1) * dilations[k] + 1; }
};

/// The padding option that adds these zeros.
std::optional<Padding> padding_of(const Window& window, std::span<const std::int64_t> extents) {
  const auto all = [&](const auto& fits) {
    for (std::size_t k = 0; k < extents.size(); ++k)
      if (!fits(k)) return false;
    return true;
  };
  if (all([&](std::size_t k) { return window.begins[k] == 0 && window.ends[k] == 0; }))
    return Padding::valid;
  if (all([&](std::size_t k) {
        return window.begins[k] == window.span(k) / 2 && window.ends[k] == window.begins[k];
      }))
    return Padding::symmetric;
  if (all([&](std::size_t k) {
        const std::int64_t outputs = (extents[k] + window.strides[k] - 1) / window.strides[k];
        const std::int64_t zeros = std::max<std::int64_t>(
            0, (outputs - 1) * window.strides[k] + window.span(k) - extents[k]);
        return window.begins[k] == zeros / 2 && window.ends[k] == zeros - zeros / 2;
      }))
    return Padding::same;
  return std::nullopt;
}

model::Extent2D extent_of(const std::vector<std::int64_t>& both) { return {both[0], both[1]}; }

/// [O, C, ...] to [O, ..., C].
std::vector<float> kernel_channels_last(const Constant& kernel) {
  const std::vector<float>& from = *kernel.floats();
  std::vector<float> to(from.size());
  const auto outputs = static_cast<std::size_t>(kernel.shape[0]);
  const auto channels = static_cast<std::size_t>(kernel.shape[1]);
  const std::size_t positions = from.size() / outputs / channels;
  for (std::size_t output = 0; output < outputs; ++output)
    for (std::size_t position = 0; position < positions; ++position)
      for (std::size_t channel = 0; channel < channels; ++channel)
        to[(output * positions + position) * channels + channel] =
            from[(output * channels + channel) * positions + position];
  return to;
}

/// The output of a layer of images [H, W, C] or sequences [T, C], channels first in the graph.
Array channels_first(NodeId node, const Shape& output) {
  Array array;
  array.node = node;
  array.axes = output;
  std::rotate(array.axes.begin(), array.axes.end() - 1, array.axes.end());
  array.shape = array.axes;
  array.shape.insert(array.shape.begin(), kSampleCount);
  for (std::size_t axis = 1; axis < output.size(); ++axis) array.order.push_back(axis);
  array.order.push_back(0);
  return array;
}

/// Reads the options of a window over an input with the extents `extents`. Calls
/// fail(expected, actual) for those that are not valid.
template <typename Fail>
Window read_window(const Node& node, std::vector<std::int64_t> kernel,
                   std::span<const std::int64_t> extents, const Fail& fail) {
  const Attributes attributes(node);
  const std::size_t axes = extents.size();
  constexpr std::int64_t kExtentLimit = std::int64_t{1} << 31;
  const auto list = [&](const char* name, std::size_t count, std::int64_t fallback,
                        std::int64_t least) {
    const auto values =
        attributes.integers(name).value_or(std::vector<std::int64_t>(count, fallback));
    if (values.size() != count ||
        std::ranges::any_of(values, [&](auto v) { return v < least || v >= kExtentLimit; }))
      fail(fmt::format("expected {} numbers from {} on as \"{}\"", count, least, name),
           "got others");
    return values;
  };
  if (kernel.empty()) kernel = list("kernel_shape", axes, 0, 1);
  Window window{.kernel = std::move(kernel),
                .strides = list("strides", axes, 1, 1),
                .dilations = list("dilations", axes, 1, 1),
                .begins = std::vector<std::int64_t>(axes),
                .ends = std::vector<std::int64_t>(axes)};
  if (std::ranges::any_of(window.kernel, [&](auto v) { return v < 1 || v >= kExtentLimit; }))
    fail("expected a window of at least one element", "it has none");
  const std::string automatic = attributes.text("auto_pad", "NOTSET");
  if (automatic == "NOTSET" || automatic.empty()) {
    const auto pads = list("pads", 2 * axes, 0, 0);
    std::copy_n(pads.begin(), axes, window.begins.begin());
    std::copy_n(pads.begin() + static_cast<std::ptrdiff_t>(axes), axes, window.ends.begin());
  } else if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (std::size_t k = 0; k < axes; ++k) {
      const std::int64_t stride = window.strides[k];
      const std::int64_t zeros = std::max<std::int64_t>(
          0, ((extents[k] + stride - 1) / stride - 1) * stride + window.span(k) - extents[k]);
      window.begins[k] = automatic == "SAME_UPPER" ? zeros / 2 : zeros - zeros / 2;
      window.ends[k] = zeros - window.begins[k];
    }
  } else if (automatic != "VALID") {
    fail("expected \"auto_pad\" to be NOTSET, SAME_UPPER, SAME_LOWER or VALID",
         fmt::format("got \"{}\"", automatic));
  }
  return window;
}

/// With ceil_mode there may be one more window, which begins before the end of the input and ends
/// outside. Extends the border to it.
void add_last_windows(Window& window, std::span<const std::int64_t> extents) {
  for (std::size_t k = 0; k < extents.size(); ++k) {
    const std::int64_t free = extents[k] + window.begins[k] + window.ends[k] - window.span(k);
    const std::int64_t rest = free % window.strides[k];
    const std::int64_t next = free - rest + window.strides[k];  // begin of one more window
    if (free >= 0 && rest != 0 && next < extents[k] + window.begins[k])
      window.ends[k] += window.strides[k] - rest;
  }
}

}  // namespace

void Importer::import_convolution(const Node& node) {
  const Array input = samples_at(node, 0);
  const Constant& kernel = weights_at(node, 1);
  const std::size_t axes = input.shape.size() < 2 ? 0 : input.shape.size() - 2;
  if (axes != 1 && axes != 2)
    refuse(node, "expected an image or a sequence, [N, C, H, W] or [N, C, T]",
           fmt::format("the input has {} axes", input.shape.size()));
  if (kernel.shape.size() != axes + 2 || kernel.floats()->empty())
    refuse(node, fmt::format("expected a kernel of {} axes", axes + 2),
           fmt::format("got {}", model::to_string(kernel.shape)));
  const std::vector<std::int64_t> extents(input.shape.begin() + 2, input.shape.end());
  const std::int64_t channels = input.shape[1];
  const std::int64_t filters = kernel.shape[0];
  const std::int64_t groups = Attributes(node).integer("group", 1);
  if (groups < 1 || groups > channels || channels % groups != 0 || filters % groups != 0 ||
      kernel.shape[1] != channels / groups)
    refuse(node, fmt::format("expected a kernel for {} channels in {} groups", channels, groups),
           fmt::format("got {}", model::to_string(kernel.shape)));
  Window window = read_window(
      node, {kernel.shape.begin() + 2, kernel.shape.end()}, extents,
      [&](std::string_view expected, std::string_view actual) { refuse(node, expected, actual); });
  std::vector<float> bias;
  if (has_input(node, 2)) {
    bias = *weights_at(node, 2).floats();
    if (static_cast<std::int64_t>(bias.size()) != filters)
      refuse(node, fmt::format("expected a bias of {} elements", filters),
             fmt::format("got {}", bias.size()));
  }
  NodeId from = channels_last(node, input);
  std::optional<Padding> padding = padding_of(window, extents);
  if (!padding && axes == 1)
    refuse(node, "expected zeros as those of \"valid\", \"same\" or \"symmetric\" (docs/models.md)",
           fmt::format("got {} and {}", window.begins[0], window.ends[0]));
  if (!padding) {
    from = add(node,
               model::ZeroPadding2D({.top = window.begins[0],
                                     .bottom = window.ends[0],
                                     .left = window.begins[1],
                                     .right = window.ends[1]}),
               {from});
    padding = Padding::valid;
  }
  const std::string name = layer_name(node, 1);
  const bool use_bias = !bias.empty();
  NodeId layer = from;
  if (axes == 1)
    layer = add(node,
                model::Conv1D({.filters = filters,
                               .kernel = window.kernel[0],
                               .strides = window.strides[0],
                               .dilation = window.dilations[0],
                               .padding = *padding,
                               .groups = groups,
                               .use_bias = use_bias}),
                {from}, name);
  else if (groups == channels && groups > 1)
    layer = add(node,
                model::DepthwiseConv2D({.kernel = extent_of(window.kernel),
                                        .strides = extent_of(window.strides),
                                        .dilation = extent_of(window.dilations),
                                        .padding = *padding,
                                        .depth_multiplier = filters / groups,
                                        .use_bias = use_bias}),
                {from}, name);
  else
    layer = add(node,
                model::Conv2D({.filters = filters,
                               .kernel = extent_of(window.kernel),
                               .strides = extent_of(window.strides),
                               .dilation = extent_of(window.dilations),
                               .padding = *padding,
                               .groups = groups,
                               .use_bias = use_bias}),
                {from}, name);
  set_weights(layer, "kernel", kernel_channels_last(kernel));
  if (use_bias) set_weights(layer, "bias", std::move(bias));
  set(node, channels_first(layer, network_.shape(layer)));
}

/// A transposed convolution. Zeros that it removes at the edges of its output, other than those of
/// "same" and "symmetric", are cropped from that of "valid".
void Importer::import_transposed_convolution(const Node& node) {
  const Array input = samples_at(node, 0);
  const Constant& kernel = weights_at(node, 1);
  const Attributes attributes(node);
  if (input.shape.size() != 4 || kernel.shape.size() != 4 || kernel.floats()->empty() ||
      kernel.shape[0] != input.shape[1] || attributes.integer("group", 1) != 1)
    refuse(node, "expected an image and a kernel for all of its channels, in one group",
           fmt::format("got {} and {}", model::to_string(input.sample()),
                       model::to_string(kernel.shape)));
  const auto fail = [&](std::string_view expected, std::string_view actual) {
    refuse(node, expected, actual);
  };
  const std::vector<std::int64_t> extents(input.shape.begin() + 2, input.shape.end());
  Window window = read_window(node, {kernel.shape.begin() + 2, kernel.shape.end()}, extents, fail);
  const auto beyond =
      attributes.integers("output_padding").value_or(std::vector<std::int64_t>(2, 0));
  const auto stated = attributes.integers("output_shape");
  const std::string automatic = attributes.text("auto_pad", "NOTSET");
  if (std::ranges::any_of(window.dilations, [](std::int64_t one) { return one != 1; }) ||
      beyond.size() != 2 || (stated && stated->size() != 2))
    refuse(node, "expected \"dilations\" of 1 and two numbers as other options", "got others");
  const std::int64_t filters = kernel.shape[1];
  // The part [begin, end) of the output of "valid".
  std::array<std::int64_t, 2> ends{};
  for (std::size_t k = 0; k < 2; ++k) {
    const std::int64_t whole = window.strides[k] * (extents[k] - 1) + window.kernel[k] + beyond[k];
    std::int64_t extent = whole - window.begins[k] - window.ends[k];
    if (stated || automatic.starts_with("SAME")) {
      extent = stated ? (*stated)[k] : extents[k] * window.strides[k];
      const std::int64_t removed = std::max<std::int64_t>(0, whole - extent);
      window.begins[k] = automatic == "SAME_LOWER" ? removed - removed / 2 : removed / 2;
    }
    ends[k] = window.begins[k] + extent;
    const std::int64_t most =
        window.strides[k] * (extents[k] - 1) + std::max(window.kernel[k], window.strides[k]);
    if (extent < 1 || ends[k] > most)
      refuse(node, fmt::format("expected an output of at most {} along axis {}", most, k + 2),
             fmt::format("got {}", ends[k]));
  }
  model::Conv2DTranspose::Options options{.filters = filters,
                                          .kernel = extent_of(window.kernel),
                                          .strides = extent_of(window.strides),
                                          .padding = Padding::valid,
                                          .use_bias = has_input(node, 2)};
  bool is_cropped = true;
  for (const Padding padding : {Padding::valid, Padding::same, Padding::symmetric}) {
    const model::WindowGeometry geometry =
        model::window_geometry({ends[0] - window.begins[0], ends[1] - window.begins[1], filters},
                               options.kernel, options.strides, padding);
    const bool fits = geometry.pad_top == window.begins[0] &&
                      geometry.pad_left == window.begins[1] &&
                      geometry.output_height == extents[0] && geometry.output_width == extents[1];
    options.padding = padding;
    const Shape shape =
        fits ? model::transposed_shape({extents[0], extents[1], filters}, options) : Shape();
    is_cropped =
        !fits || shape[0] != ends[0] - window.begins[0] || shape[1] != ends[1] - window.begins[1];
    if (!is_cropped) break;
  }
  if (is_cropped) options.padding = Padding::valid;
  const NodeId layer =
      add(node, model::Conv2DTranspose(options), {channels_last(node, input)}, layer_name(node, 1));
  // [C, O, ...] to [C, ..., O].
  set_weights(layer, "kernel", kernel_channels_last(kernel));
  if (options.use_bias) {
    const std::vector<float>& bias = *weights_at(node, 2).floats();
    if (static_cast<std::int64_t>(bias.size()) != filters)
      refuse(node, fmt::format("expected a bias of {} elements", filters),
             fmt::format("got {}", bias.size()));
    set_weights(layer, "bias", bias);
  }
  Array output = channels_first(layer, network_.shape(layer));
  if (is_cropped)
    for (std::size_t k = 0; k < 2; ++k)
      output = cropped(node, output, k + 2, window.begins[k], ends[k]);
  set(node, output);
}

/// An enlargement of an image by whole factors.
void Importer::import_resize(const Node& node) {
  const Array input = samples_at(node, 0);
  if (input.shape.size() != 4)
    refuse(node, "expected an image [N, C, H, W]",
           fmt::format("the input has {} axes", input.shape.size()));
  const Attributes attributes(node);
  std::array<double, 4> factors{};
  const Constant* const scales = constant_at(node, 2);
  if (scales != nullptr && scales->floats() != nullptr && scales->floats()->size() == 4) {
    for (std::size_t axis = 0; axis < 4; ++axis)
      factors[axis] = static_cast<double>((*scales->floats())[axis]);
  } else if (const auto sizes = integers_at(node, 3, ""); sizes && sizes->size() == 4) {
    factors = {1, 0, 0, 0};
    for (std::size_t axis = 1; axis < 4; ++axis)
      factors[axis] = static_cast<double>((*sizes)[axis]) / static_cast<double>(input.shape[axis]);
  }
  const auto is_whole = [](double factor) {
    return factor >= 1 && factor < 65536 && factor == std::floor(factor);
  };
  if (factors[0] != 1 || factors[1] != 1 || !is_whole(factors[2]) || !is_whole(factors[3]))
    refuse(node, "expected height and width multiplied by whole numbers",
           fmt::format("got the factors {}, {}, {} and {}", factors[0], factors[1], factors[2],
                       factors[3]));
  const std::string mode = attributes.text("mode", "nearest");
  const std::string places = attributes.text("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = attributes.text("nearest_mode", "round_prefer_floor");
  // For whole factors, these select the same pixels.
  const bool repeats =
      mode == "nearest" && ((places == "asymmetric" && rounding == "floor") ||
                            (places == "tf_half_pixel_for_nn" && rounding == "floor") ||
                            ((places == "half_pixel" || places == "pytorch_half_pixel") &&
                             rounding.starts_with("round")));
  const bool interpolates =
      mode == "linear" && (places == "half_pixel" || places == "pytorch_half_pixel");
  if ((!repeats && !interpolates) || attributes.integer("antialias", 0) != 0)
    refuse(node, "expected nearest pixels, or linear interpolation with half_pixel coordinates",
           fmt::format("got \"{}\", \"{}\" and \"{}\"", mode, places, rounding));
  const NodeId layer = add(
      node,
      model::UpSampling2D(
          {.size = {static_cast<std::int64_t>(factors[2]), static_cast<std::int64_t>(factors[3])},
           .interpolation =
               repeats ? model::Interpolation::nearest : model::Interpolation::bilinear}),
      {channels_last(node, input)});
  set(node, channels_first(layer, network_.shape(layer)));
}

/// A pooling of images, or of sequences as images of one column.
void Importer::import_pooling(const Node& node) {
  const Array input = samples_at(node, 0);
  const std::size_t axes = input.shape.size() < 2 ? 0 : input.shape.size() - 2;
  if (axes != 1 && axes != 2)
    refuse(node, "expected an image or a sequence, [N, C, H, W] or [N, C, T]",
           fmt::format("the input has {} axes", input.shape.size()));
  std::vector<std::int64_t> extents(input.shape.begin() + 2, input.shape.end());
  const auto fail = [&](std::string_view expected, std::string_view actual) {
    refuse(node, expected, actual);
  };
  Window window = read_window(node, {}, extents, fail);
  const Attributes attributes(node);
  const bool is_max = node.type == "MaxPool";
  if (std::ranges::any_of(window.dilations, [](std::int64_t one) { return one != 1; }))
    refuse(node, "expected windows of neighboring elements (\"dilations\" 1)", "got others");
  if (is_used(node, 1)) refuse(node, "expected its first output only", "its indices are read");
  const bool has_border = !is_max && padding_of(window, extents) != Padding::valid;
  const bool counts_border = has_border && attributes.integer("count_include_pad", 0) != 0;
  std::vector<std::int64_t> ends = window.ends;
  if (attributes.integer("ceil_mode", 0) != 0) add_last_windows(window, extents);
  NodeId from = channels_last(node, input);
  if (axes == 1) {
    from = moved(node, from, {extents[0], 1, input.shape[1]}, std::nullopt);
    extents.push_back(1);
    for (auto* const list : {&window.kernel, &window.strides, &window.dilations})
      list->push_back(1);
    for (auto* const list : {&window.begins, &window.ends, &ends}) list->push_back(0);
  }
  if (counts_border) {  // what add_last_windows() has added does not count
    from = add(node,
               model::ZeroPadding2D({.top = window.begins[0],
                                     .bottom = ends[0],
                                     .left = window.begins[1],
                                     .right = ends[1]}),
               {from});
    for (std::size_t k = 0; k < ends.size(); ++k) {
      extents[k] += window.begins[k] + ends[k];
      window.begins[k] = 0;
      window.ends[k] -= ends[k];
    }
  }
  // Axes whose borders no one option describes are pooled one after the other.
  const auto pooled = [&](const Window& part) -> bool {
    const std::optional<Padding> padding = padding_of(part, extents);
    if (!padding) return false;
    const model::PoolOptions options{
        .pool = extent_of(part.kernel), .strides = extent_of(part.strides), .padding = *padding};
    from = is_max ? add(node, model::MaxPool2D(options), {from})
                  : add(node, model::AveragePool2D(options), {from});
    return true;
  };
  if (!pooled(window))
    for (std::size_t k = 0; k < 2; ++k) {
      Window part = window;
      const std::size_t other = 1 - k;
      part.kernel[other] = part.strides[other] = 1;
      part.begins[other] = part.ends[other] = 0;
      if (!pooled(part))
        refuse(node,
               "expected a border as that of \"valid\", \"same\" or \"symmetric\" (docs/models.md)",
               fmt::format("got \"pads\" {}, {}, {} and {}", window.begins[0], window.begins[1],
                           window.ends[0], window.ends[1]));
      extents[k] = network_.shape(from)[k];
    }
  Shape output = network_.shape(from);
  if (axes == 1) output.erase(output.begin() + 1);
  set(node, channels_first(from, output));
}

void Importer::import_global_pooling(const Node& node) {
  const Array input = samples_at(node, 0);
  const bool is_max = node.type == "GlobalMaxPool";
  const std::size_t rank = input.shape.size();
  if (rank != 4 && (rank != 3 || is_max))
    refuse(node, "expected an image [N, C, H, W]", fmt::format("the input has {} axes", rank));
  const NodeId from = channels_last(node, input);
  const NodeId layer = rank == 3 ? add(node, model::GlobalAveragePooling1D(), {from})
                       : is_max  ? add(node, model::GlobalMaxPooling2D(), {from})
                                 : add(node, model::GlobalAveragePooling2D(), {from});
  Shape output(rank - 1, 1);
  output.back() = input.shape[1];
  set(node, channels_first(layer, output));
}

/// A mean or a maximum over all positions of an image or a sequence.
void Importer::import_reduction(const Node& node) {
  if (node.type == "ReduceMean" && import_decomposed_normalization(node)) return;
  const Array input = samples_at(node, 0);
  const std::size_t rank = input.shape.size();
  const auto listed = integers_at(node, 1, "axes");
  std::vector<bool> reduced(rank);
  if (listed)
    for (const std::int64_t one : *listed) {
      const auto axis = axis_of(one, rank);
      if (!axis) refuse(node, fmt::format("expected axes of {}", rank), fmt::format("got {}", one));
      reduced[*axis] = true;
    }
  const auto count = std::ranges::count(reduced, true);
  const bool is_max = node.type == "ReduceMax";
  const bool is_image = rank == 4 && count == 2;
  if (reduced.empty() || reduced[0] || !(is_image || (rank == 3 && count == 1 && !is_max)))
    refuse(node, "expected a reduction of the positions of an image or a sequence",
           fmt::format("it reduces {} of {} axes", count, rank));
  Axes order;
  for (const bool kept : {false, true})
    for (std::size_t axis = 1; axis < rank; ++axis)
      if (reduced[axis] != kept) order.push_back(axis - 1);
  const NodeId from = arranged(node, input, order);
  Array output;
  output.node = !is_image ? add(node, model::GlobalAveragePooling1D(), {from})
                : is_max  ? add(node, model::GlobalMaxPooling2D(), {from})
                          : add(node, model::GlobalAveragePooling2D(), {from});
  const bool keeps = Attributes(node).integer("keepdims", 1) != 0;
  for (std::size_t axis = 0; axis < rank; ++axis)
    if (!reduced[axis] || keeps) output.shape.push_back(reduced[axis] ? 1 : input.shape[axis]);
  output.axes = network_.shape(output.node);
  output.order = {0};
  set(node, output);
}

void Importer::import_batch_normalization(const Node& node) {
  const Array input = samples_at(node, 0);
  const std::size_t rank = input.shape.size();
  if (rank < 2 || rank > 4)
    refuse(node, "expected an image, a sequence or a row",
           fmt::format("the input has {} axes", rank));
  const std::int64_t channels = input.shape[1];
  const Attributes attributes(node);
  const NodeId from = channels_last(node, input);
  const NodeId layer =
      add(node,
          model::BatchNormalization({.momentum = attributes.number("momentum", 0.9f),
                                     .epsilon = attributes.number("epsilon", 1e-5f)}),
          {from}, layer_name(node, 1));
  constexpr std::array kArrays = {"gamma", "beta", "moving_mean", "moving_variance"};
  for (std::size_t k = 0; k < kArrays.size(); ++k) {
    const std::vector<float>& values = *weights_at(node, k + 1).floats();
    if (static_cast<std::int64_t>(values.size()) != channels)
      refuse(node, fmt::format("expected {} elements for {} channels", channels, channels),
             fmt::format("input {} has {}", k + 1, values.size()));
    set_weights(layer, kArrays[k], values);
  }
  for (std::size_t output = 1; output < node.outputs.size(); ++output)
    if (is_used(node, output))
      refuse(node, "expected its first output only", "its statistics are read");
  set(node, channels_first(layer, network_.shape(layer)));
}

void Importer::import_padding(const Node& node) {
  const Array input = samples_at(node, 0);
  const std::size_t rank = input.shape.size();
  const auto pads = integers_at(node, 1, "pads");
  const Constant* const value = constant_at(node, 2);
  if (Attributes(node).text("mode", "constant") != "constant" ||
      (has_input(node, 2) && (value == nullptr || !value->is_zero())))
    refuse(node, "expected zeros at the edges", "other values are added");
  std::vector<std::int64_t> begins(rank);
  std::vector<std::int64_t> ends(rank);
  std::vector<std::int64_t> axes;
  if (has_input(node, 3)) axes = *integers_at(node, 3, "axes");
  for (std::size_t axis = 0; axis < rank && !has_input(node, 3); ++axis)
    axes.push_back(static_cast<std::int64_t>(axis));
  if (!pads || pads->size() != 2 * axes.size())
    refuse(node, fmt::format("expected {} numbers of zeros", 2 * axes.size()),
           fmt::format("got {}", pads ? pads->size() : 0));
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto axis = axis_of(axes[k], rank);
    const std::int64_t before = (*pads)[k];
    const std::int64_t after = (*pads)[k + axes.size()];
    if (!axis || std::min(before, after) < 0 || std::max(before, after) >= (std::int64_t{1} << 31))
      refuse(node, "expected numbers of zeros that are not negative", "got others");
    begins[*axis] = before;
    ends[*axis] = after;
  }
  const auto is_padded = [&](std::size_t axis) { return begins[axis] + ends[axis] > 0; };
  Axes still;
  Axes moving;
  for (std::size_t axis = 1; axis < rank; ++axis)
    (is_padded(axis) ? moving : still).push_back(axis);
  if (moving.empty() && (rank == 0 || !is_padded(0))) return set(node, input);
  if ((rank != 4 && rank != 3) || is_padded(0) || still.empty())
    refuse(node, "expected zeros at the edges of an image or a sequence", "it pads other axes");
  if (rank == 3) {  // as an image of one column
    const std::size_t axis = moving.front();
    Array array = with_sample_axes(node, input);
    const Axes order{axis - 1, 2 - axis};
    const std::int64_t width = input.shape[3 - axis];
    const NodeId from =
        moved(node, arranged(node, array, order), {input.shape[axis], 1, width}, std::nullopt);
    array.node = add(
        node,
        model::ZeroPadding2D({.top = begins[axis], .bottom = ends[axis], .left = 0, .right = 0}),
        {from});
    array.shape[axis] += begins[axis] + ends[axis];
    array.axes = array.sample();
    array.order = order;
    return set(node, array);
  }
  // The channels are the last axis in the network if it is not padded, else the first such axis.
  Array array = with_sample_axes(node, input);
  std::size_t channels = still.front();
  if (std::ranges::find(still, array.order.back() + 1) != still.end())
    channels = array.order.back() + 1;
  Array output;
  output.shape = input.shape;
  for (std::size_t axis = 1; axis < rank; ++axis) {
    output.shape[axis] += begins[axis] + ends[axis];
    if (axis != channels) output.order.push_back(axis - 1);
  }
  const std::size_t height = output.order[0] + 1;
  const std::size_t width = output.order[1] + 1;
  output.order.push_back(channels - 1);
  const NodeId from = arranged(node, array, output.order);
  output.axes = output.sample();
  output.node = add(node,
                    model::ZeroPadding2D({.top = begins[height],
                                          .bottom = ends[height],
                                          .left = begins[width],
                                          .right = ends[width]}),
                    {from});
  set(node, output);
}

}  // namespace lockstep::inline v0::onnx
