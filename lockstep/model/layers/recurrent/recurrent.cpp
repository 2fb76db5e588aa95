#include "lockstep/model/layers/recurrent/recurrent.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {
namespace {

constexpr auto kCells = enum_names<RecurrentCell>({{RecurrentCell::simple_rnn, "simple_rnn"},
                                                   {RecurrentCell::gru, "gru"},
                                                   {RecurrentCell::lstm, "lstm"}});

// Forget gates biased to 1 let an LSTM remember from the start (Jozefowicz et al., ICML 2015).
Initializer forget_gates_of_one(std::int64_t units) {
  return {.draw = [units](std::uint64_t /*seed*/, std::span<float> values) {
    std::ranges::fill(values, 0.0f);
    const auto size = static_cast<std::size_t>(units);
    std::ranges::fill(values.subspan(size, size), 1.0f);
  }};
}

}  // namespace

RecurrentLayout recurrent_layout(const RecurrentSpec& spec, std::size_t element_bytes) {
  const auto array_bytes = [&](std::int64_t steps, std::int64_t columns, std::size_t bytes) {
    return static_cast<std::size_t>(steps * spec.rows * columns) * bytes;
  };
  MemoryParts parts;
  RecurrentLayout layout;
  layout.gates = parts.add(array_bytes(spec.steps, spec.width(), element_bytes));
  layout.hidden = parts.add(array_bytes(spec.steps + 1, spec.units, element_bytes));
  if (spec.cell == RecurrentCell::lstm)
    layout.state = parts.add(array_bytes(spec.steps + 1, spec.units, sizeof(float)));
  if (spec.cell == RecurrentCell::gru && spec.training)
    layout.candidates = parts.add(array_bytes(spec.steps, spec.units, element_bytes));
  if (spec.segments) layout.marks = parts.add(array_bytes(spec.steps, 1, sizeof(RecurrentMark)));
  layout.bytes = parts.bytes();
  return layout;
}

std::string Recurrent::kind() const { return std::string(kCells.name(cell_)); }

void Recurrent::check(const BuildContext& context) const {
  const std::vector<Shape>& inputs = context.inputs();
  const bool state = options_.initial_state;
  const bool segments = options_.segments;
  if (inputs.size() != std::size_t{1} + (state ? 1 : 0) + (segments ? 1 : 0))
    context.refuse(
        fmt::format("expected an input [positions, features]{}{}",
                    state ? ", its initial state" : "", segments ? ", its segments" : ""),
        fmt::format("got {} inputs", inputs.size()));
  const Shape& input = inputs.front();
  if (input.size() != 2)
    context.refuse("expected an input [positions, features]",
                   fmt::format("got {}", to_string(input)));
  if (options_.units <= 0)
    context.refuse("expected at least one unit", fmt::format("got {}", options_.units));
  if (options_.go_backwards && options_.bidirectional)
    context.refuse("expected go_backwards or bidirectional", "got both");
  if (options_.recurrent_bias && !options_.use_bias)
    context.refuse("expected use_bias with recurrent_bias", "got recurrent_bias alone");
  const RecurrentSpec sizes{
      .cell = cell_, .units = options_.units, .directions = options_.bidirectional ? 2 : 1};
  if (const Shape expected = {sizes.state_elements()}; state && inputs[1] != expected)
    context.refuse(fmt::format("expected an initial state {}", to_string(expected)),
                   fmt::format("got {}", to_string(inputs[1])));
  if (const Shape expected = {input[0]}; segments && inputs.back() != expected)
    context.refuse(fmt::format("expected segments {}", to_string(expected)),
                   fmt::format("got {}", to_string(inputs.back())));
}

bool Recurrent::has_recurrent_bias() const {
  return options_.use_bias && (options_.recurrent_bias || cell_ == RecurrentCell::gru);
}

Shape Recurrent::build(BuildContext& context) const {
  check(context);
  const Shape& input = context.inputs().front();
  const RecurrentSpec sizes{.cell = cell_, .units = options_.units};
  const std::int64_t width = context.within_limits({sizes.width()}).front();
  for (const char* const prefix : {"", "backward_"}) {
    if (*prefix != 0 && !options_.bidirectional) break;
    const auto name = [&](const char* array) { return std::string(prefix) + array; };
    context.parameter(
        name("kernel"), {width, input[1]},
        {.kind = Initializer::Kind::glorot_uniform, .fan_in = input[1], .fan_out = width});
    context.parameter(name("recurrent_kernel"), {width, options_.units},
                      {.kind = Initializer::Kind::orthogonal, .fan_in = options_.units});
    if (!options_.use_bias) continue;
    context.parameter(
        name("bias"), {width},
        cell_ == RecurrentCell::lstm ? forget_gates_of_one(options_.units) : Initializer{}, false);
    if (has_recurrent_bias()) context.parameter(name("recurrent_bias"), {width}, {}, false);
  }
  const std::int64_t outputs = (options_.bidirectional ? 2 : 1) * options_.units;
  return context.within_limits(options_.return_sequences ? Shape{input[0], outputs}
                                                         : Shape{outputs});
}

RecurrentSpec Recurrent::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.cell = cell_,
          .batch = context.batch,
          .rows = context.batch,
          .steps = input[0],
          .inputs = input[1],
          .units = options_.units,
          .directions = options_.bidirectional ? 2 : 1,
          .go_backwards = options_.go_backwards,
          .sequences = options_.return_sequences,
          .bias = options_.use_bias,
          .recurrent_bias = has_recurrent_bias(),
          .segments = options_.segments && context.positions == 0,
          .initial_state = options_.initial_state,
          .training = context.has_backward(),
          .input_gradient = context.input_gradients,
          .positions = context.positions};
}

Traits Recurrent::traits() const {
  constexpr std::int64_t kSegments = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  return {.index_count = options_.segments ? kSegments : 0,
          .incremental = options_.return_sequences && !options_.go_backwards &&
                         !options_.bidirectional && !options_.initial_state};
}

std::optional<std::size_t> Recurrent::index_input(std::size_t inputs) const {
  if (!options_.segments || inputs < 2) return std::nullopt;
  return inputs - 1;
}

std::int64_t Recurrent::flop(const CompileContext& context) const {
  const RecurrentSpec s = spec(context);
  return 2 * s.directions * s.all_rows() * s.width() * (s.inputs + s.units);
}

RecurrentOptions Recurrent::read_options(JsonObject& object, RecurrentCell cell) {
  return {.units = object.count("units"),
          .return_sequences = object.flag("return_sequences", false),
          .go_backwards = object.flag("go_backwards", false),
          .bidirectional = object.flag("bidirectional", false),
          .use_bias = object.flag("use_bias", true),
          .recurrent_bias = cell != RecurrentCell::gru && object.flag("recurrent_bias", false),
          .segments = object.flag("segments", false),
          .initial_state = object.flag("initial_state", false)};
}

void Recurrent::write(nlohmann::json& object) const {
  object["units"] = options_.units;
  object["return_sequences"] = options_.return_sequences;
  object["go_backwards"] = options_.go_backwards;
  object["bidirectional"] = options_.bidirectional;
  object["use_bias"] = options_.use_bias;
  if (options_.recurrent_bias && cell_ != RecurrentCell::gru) object["recurrent_bias"] = true;
  if (options_.segments) object["segments"] = true;
  if (options_.initial_state) object["initial_state"] = true;
}

}  // namespace lockstep::inline v0::model
