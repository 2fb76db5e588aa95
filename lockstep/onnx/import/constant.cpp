#include "lockstep/onnx/import/constant.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/float16.h"

namespace lockstep::inline v0::onnx {
namespace {

template <typename Element>
std::vector<Element> elements_of(const std::string& bytes) {
  std::vector<Element> values(bytes.size() / sizeof(Element));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Element));
  return values;
}

template <typename From>
Constant integers_of(const Tensor& tensor) {
  const std::vector<From> values = elements_of<From>(tensor.bytes);
  std::vector<std::int64_t> integers(values.begin(), values.end());
  // Numbers of a file that stand for times the samples become others of the same effect: far below
  // 0, they mean "from the beginning", or are refused.
  for (std::int64_t& integer : integers)
    if (times_in(integer) > 0) integer = times_samples(std::int64_t{1} << 31) + 1;
  return make_constant(tensor.shape, std::move(integers));
}

template <typename Half>
Constant widened(const Tensor& tensor) {
  const std::vector<Half> values = elements_of<Half>(tensor.bytes);
  std::vector<float> wide(values.size());
  widen(values, wide);
  return make_constant(tensor.shape, std::move(wide));
}

template <typename Value>
const Value* value_of(const Attribute* attribute) {
  return attribute == nullptr ? nullptr : std::get_if<Value>(&attribute->value);
}

}  // namespace

bool Constant::has_batch() const { return std::ranges::find(shape, kSampleCount) != shape.end(); }

const std::vector<float>* Constant::floats() const {
  const auto* const found = std::get_if<Elements<float>>(&values);
  return found == nullptr ? nullptr : found->get();
}

const std::vector<std::int64_t>* Constant::integers() const {
  const auto* const found = std::get_if<Elements<std::int64_t>>(&values);
  return found == nullptr ? nullptr : found->get();
}

std::optional<double> Constant::scalar() const {
  if (has_batch() || model::element_count(shape) != 1) return std::nullopt;
  return visit_values(*this, [](const auto& all) { return static_cast<double>(all.front()); });
}

bool Constant::is_zero() const {
  return visit_values(*this, [](const auto& all) {
    return std::ranges::all_of(all, [](auto value) { return value == 0; });
  });
}

Constant constant_of(const Tensor& tensor) {
  switch (tensor.type) {
    case TensorType::float32:
      return make_constant(tensor.shape, elements_of<float>(tensor.bytes));
    case TensorType::float64: {
      const std::vector<double> values = elements_of<double>(tensor.bytes);
      std::vector<float> floats;
      for (const double value : values) floats.push_back(static_cast<float>(value));
      return make_constant(tensor.shape, std::move(floats));
    }
    case TensorType::float16:
      return widened<Float16>(tensor);
    case TensorType::bfloat16:
      return widened<BFloat16>(tensor);
    case TensorType::int64:
      return integers_of<std::int64_t>(tensor);
    case TensorType::int32:
      return integers_of<std::int32_t>(tensor);
    case TensorType::int8:
      return integers_of<std::int8_t>(tensor);
    case TensorType::uint8:
    case TensorType::boolean:
    case TensorType::string:
      break;
  }
  return integers_of<std::uint8_t>(tensor);
}

Constant constant_of(std::vector<std::int64_t> values) {
  const model::Shape shape = {static_cast<std::int64_t>(values.size())};
  return make_constant(shape, std::move(values));
}

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = std::ranges::find(node_->attributes, name, &Attribute::name);
  return found == node_->attributes.end() ? nullptr : &*found;
}

std::int64_t Attributes::integer(std::string_view name, std::int64_t fallback) const {
  const auto* const value = value_of<std::int64_t>(find(name));
  return value ? *value : fallback;
}

float Attributes::number(std::string_view name, float fallback) const {
  const auto* const value = value_of<float>(find(name));
  return value ? *value : fallback;
}

std::string Attributes::text(std::string_view name, std::string_view fallback) const {
  const auto* const value = value_of<std::string>(find(name));
  return value ? *value : std::string(fallback);
}

std::optional<std::vector<std::int64_t>> Attributes::integers(std::string_view name) const {
  const auto* const value = value_of<std::vector<std::int64_t>>(find(name));
  return value ? std::optional(*value) : std::nullopt;
}

std::vector<float> Attributes::numbers(std::string_view name) const {
  const auto* const value = value_of<std::vector<float>>(find(name));
  return value ? *value : std::vector<float>();
}

std::vector<std::string> Attributes::texts(std::string_view name) const {
  const auto* const value = value_of<std::vector<std::string>>(find(name));
  return value ? *value : std::vector<std::string>();
}

const Tensor* Attributes::tensor(std::string_view name) const {
  return value_of<Tensor>(find(name));
}

std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

}  // namespace lockstep::inline v0::onnx
