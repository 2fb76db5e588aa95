#include "lockstep/model/layers/attention/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {
namespace {

constexpr std::int64_t kMaxWidth = 256;  // per head: a GPU block keeps rows in registers

// The elements per head of `heads` heads in `row` elements.
std::int64_t width_of_heads(const BuildContext& context, const char* what, std::int64_t row,
                            std::int64_t heads) {
  if (row % heads != 0)
    context.refuse(fmt::format("expected {} of {} heads of the same size", what, heads),
                   fmt::format("got rows of {} elements", row));
  return row / heads;
}

}  // namespace

std::int64_t Attention::key_value_heads() const {
  return options_.key_value_heads > 0 ? options_.key_value_heads : options_.heads;
}

Shape Attention::build(BuildContext& context) const {
  const std::vector<Shape>& inputs = context.inputs();
  const std::int64_t heads = options_.heads;
  const std::int64_t shared = key_value_heads();
  if (heads <= 0 || options_.key_value_heads < 0 || heads % shared != 0)
    context.refuse("expected at least one head, and key_value_heads that divide the heads",
                   fmt::format("got {} and {}", heads, options_.key_value_heads));
  if (!(options_.rotary >= 0) || !std::isfinite(options_.rotary))
    context.refuse("expected rotary to be 0 or the base of the angles",
                   fmt::format("got {}", options_.rotary));
  if (inputs.empty() || inputs.size() > 4)
    context.refuse("expected 1 input, or queries, keys and values, and optionally segments",
                   fmt::format("got {} inputs", inputs.size()));
  const std::size_t values = index_input(inputs.size()).value_or(inputs.size());
  for (std::size_t k = 0; k < values; ++k)
    if (inputs[k].size() != 2)
      context.refuse("expected inputs [positions, elements]",
                     fmt::format("got {}", to_string(inputs[k])));

  const Shape& queries = inputs.front();
  std::int64_t width = 0;
  if (values == 1) {
    width = width_of_heads(context, "queries, keys and values", queries[1], heads + 2 * shared);
  } else {
    width = width_of_heads(context, "queries", queries[1], heads);
    if (inputs[1] != inputs[2] || inputs[1][1] != shared * width)
      context.refuse(fmt::format("expected keys and values [S, {}]", shared * width),
                     fmt::format("got {} and {}", to_string(inputs[1]), to_string(inputs[2])));
    if (options_.causal && inputs[1][0] != queries[0])
      context.refuse("expected equal numbers of keys and queries for causal attention",
                     fmt::format("got {} and {}", inputs[1][0], queries[0]));
  }
  if (width > kMaxWidth)
    context.refuse(fmt::format("expected heads of at most {} elements", kMaxWidth),
                   fmt::format("got {}", width));
  if (options_.rotary > 0 && width % 2 != 0)
    context.refuse("expected heads of an even number of elements for rotary",
                   fmt::format("got {}", width));
  if (values < inputs.size() &&
      (inputs.back() != Shape{queries[0]} || inputs[values - 1][0] != queries[0]))
    context.refuse(
        fmt::format("expected segments [{}] and {} keys", queries[0], queries[0]),
        fmt::format("got {} and {} keys", to_string(inputs.back()), inputs[values - 1][0]));
  return {queries[0], heads * width};
}

AttentionSpec Attention::spec(const CompileContext& context) const {
  const std::int64_t width = context.output[1] / options_.heads;
  const bool packed = context.inputs.size() < 3;
  const bool cached = context.positions > 0;
  return {.batch = context.batch,
          .queries = context.output[0],
          .keys = cached   ? context.positions
                  : packed ? context.output[0]
                           : context.inputs[1][0],
          .heads = options_.heads,
          .key_value_heads = key_value_heads(),
          .width = width,
          .packed = packed,
          .causal = options_.causal,
          .rotary = options_.rotary,
          .scale = 1 / std::sqrt(static_cast<float>(width)),
          .segments = !cached && index_input(context.inputs.size()).has_value(),
          .training = context.training && context.input_gradients,
          .cached = cached};
}

AttentionSpec::Part AttentionSpec::part(std::size_t which) const {
  const std::int64_t rows[] = {heads * width, key_value_heads * width, key_value_heads * width};
  if (!packed) return {.input = which, .offset = 0, .stride = rows[which]};
  std::int64_t offset = 0;
  for (std::size_t k = 0; k < which; ++k) offset += rows[k];
  return {.input = 0, .offset = offset, .stride = rows[0] + rows[1] + rows[2]};
}

double AttentionSpec::angle(std::int64_t position, std::int64_t i) const {
  return static_cast<double>(position) *
         std::pow(static_cast<double>(rotary),
                  -2 * static_cast<double>(i) / static_cast<double>(width));
}

std::int64_t Attention::flop(const CompileContext& context) const {
  const AttentionSpec s = spec(context);
  const std::int64_t pairs = options_.causal ? s.queries * (s.queries + 1) / 2 : s.queries * s.keys;
  return 4 * s.batch * s.heads * s.width * pairs;
}

Traits Attention::traits() const {
  return {.index_count = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1,
          .incremental = options_.causal,
          .incremental_on_gpu = options_.causal};
}

std::optional<std::size_t> Attention::index_input(std::size_t inputs) const {
  if (inputs == 0 || inputs % 2 != 0) return std::nullopt;
  return inputs - 1;
}

std::shared_ptr<const Layer> Attention::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Attention>(
      Options{.heads = object.count("heads"),
              .key_value_heads = object.count("key_value_heads", 0),
              .causal = object.flag("causal", false),
              .rotary = object.number("rotary", 0)});
}

void Attention::write(nlohmann::json& object) const {
  object["heads"] = options_.heads;
  object["key_value_heads"] = key_value_heads();
  object["causal"] = options_.causal;
  object["rotary"] = options_.rotary;
}

}  // namespace lockstep::inline v0::model
