#include "lockstep/data/sample/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::data {

void throw_wrong_type(std::string_view name, ElementType requested, ElementType type) {
  throw Error(ErrorCategory::input, name,
              fmt::format("expected a tensor of {}", to_string(requested)),
              fmt::format("it is {}", to_string(type)));
}

void throw_no_tensor(std::string_view what, std::string_view name,
                     const std::vector<std::string_view>& known) {
  if (known.empty())
    throw Error(ErrorCategory::input, what, fmt::format("expected one called \"{}\"", name),
                "there are none");
  refuse_name(what, name, known);
}

void TensorView::set_length(std::size_t length) {
  if (row == nullptr)
    throw Error(ErrorCategory::input, name, "expected a tensor whose first extent is unknown (-1)",
                fmt::format("all samples have {}", counted(elements, "element")));
  if (length > static_cast<std::size_t>(kMaxElements) / unit)
    throw Error(ErrorCategory::data, name, "expected at most 2^28 elements in a sample",
                fmt::format("got {} times {}", length, unit));
  if (type == ElementType::bytes)
    row->strings.resize(length * unit);
  else
    row->bytes.resize(length * unit * element_bytes(type));
  attach(*row);
}

void TensorView::attach(RaggedRow& to) {
  row = &to;
  const bool has_strings = type == ElementType::bytes;
  data = has_strings ? reinterpret_cast<std::byte*>(to.strings.data()) : to.bytes.data();
  elements = has_strings ? to.strings.size() : to.bytes.size() / element_bytes(type);
}

const TensorView& Sample::input(std::string_view name) const {
  return find_tensor(std::span(inputs), "inputs of the sample", name);
}

TensorView& Sample::input(std::string_view name) {
  return find_tensor(std::span(inputs), "inputs of the sample", name);
}

const TensorView& Sample::target(std::string_view name) const {
  return find_tensor(std::span(targets), "targets of the sample", name);
}

TensorView& Sample::target(std::string_view name) {
  return find_tensor(std::span(targets), "targets of the sample", name);
}

void Sample::throw_no_label() {
  throw Error(ErrorCategory::input, "label of the sample",
              "expected one class number as the first target", "the data set has none");
}

std::span<std::uint8_t> StoredImage::allocate(std::size_t count) {
  memory.resize(count);
  const std::span pixels(reinterpret_cast<std::uint8_t*>(memory.data()), count);
  bytes = pixels;
  return pixels;
}

void Sample::set_image(std::span<const std::uint8_t> pixels_of_image,
                       const ChannelNormalization& normalization) {
  if (image == nullptr) return set_image_view(pixels_of_image, normalization);
  std::ranges::copy(pixels_of_image, image->allocate(pixels_of_image.size()).begin());
}

void Sample::set_image_view(std::span<const std::uint8_t> pixels_of_image,
                            const ChannelNormalization& normalization) {
  if (image != nullptr) {
    image->bytes = pixels_of_image;
    return;
  }
  const std::span<std::uint8_t> to = pixels();
  if (to.empty()) return pixels_to_features(pixels_of_image, normalization, features());
  LOCKSTEP_CHECK_OP(pixels_of_image.size(), ==, to.size());
  std::memcpy(to.data(), pixels_of_image.data(), pixels_of_image.size());
}

}  // namespace lockstep::inline v0::data
