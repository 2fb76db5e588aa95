#include "lockstep/model/layer/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::model {

BuildContext::BuildContext(std::string layer, std::string kind, std::vector<Shape> inputs,
                           std::vector<SharedParameter> shared)
    : layer_(std::move(layer)),
      kind_(std::move(kind)),
      inputs_(std::move(inputs)),
      shared_(std::move(shared)) {}

const Shape& BuildContext::input() const {
  if (inputs_.size() != 1) refuse("expected one input", fmt::format("got {}", inputs_.size()));
  return inputs_.front();
}

const Shape& BuildContext::row_input() const {
  const Shape& shape = input();
  if (shape.empty()) refuse("expected an input [..., features]", "got []");
  return shape;
}

const Shape& BuildContext::image_input() const {
  const Shape& shape = input();
  if (shape.size() != 3)
    refuse("expected an input [height, width, channels]", fmt::format("got {}", to_string(shape)));
  return shape;
}

Shape BuildContext::within_limits(Shape output) const {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (std::ranges::any_of(output, [](std::int64_t extent) { return extent > kMax; }))
    refuse("expected extents of less than 2^31", fmt::format("got {}", to_string(output)));
  return output;
}

const Shape& BuildContext::shared_parameter(std::string_view owner) {
  LOCKSTEP_CHECK(owner_.empty());
  const auto found = std::ranges::find(shared_, owner, &SharedParameter::owner);
  if (found != shared_.end()) {
    owner_ = owner;
    return found->shape;
  }
  std::vector<std::string_view> known;
  for (const SharedParameter& parameter : shared_) known.push_back(parameter.owner);
  if (known.empty())
    refuse("expected an earlier embedding that no other layer shares",
           fmt::format("got \"{}\", and there is none", owner));
  refuse("expected an earlier embedding that no other layer shares: " + list_names(known),
         got_name(owner, known));
}

Initializer BuildContext::normal_or(float stddev, Initializer otherwise) const {
  if (!(stddev >= 0) || !std::isfinite(stddev))
    refuse("expected stddev to be 0 or a standard deviation", fmt::format("got {}", stddev));
  if (stddev > 0) return {.kind = Initializer::Kind::normal, .value = stddev};
  return otherwise;
}

void BuildContext::parameter(std::string_view name, Shape shape, Initializer initializer,
                             bool decay) {
  parameters_.push_back({.name = fmt::format("{}/{}", layer_, name),
                         .shape = std::move(shape),
                         .decay = decay,
                         .initializer = std::move(initializer)});
}

void BuildContext::buffer(std::string_view name, Shape shape, float initial) {
  buffer(name, std::move(shape), Initializer{.value = initial});
}

void BuildContext::buffer(std::string_view name, Shape shape, Initializer initializer) {
  buffers_.push_back({.name = fmt::format("{}/{}", layer_, name),
                      .shape = std::move(shape),
                      .decay = false,
                      .initializer = std::move(initializer)});
}

void BuildContext::refuse(std::string_view expected, std::string_view actual) const {
  throw Error(ErrorCategory::input, fmt::format("layer {} ({})", layer_, kind_), expected, actual);
}

}  // namespace lockstep::inline v0::model
