#include "lockstep/data/sample/record_source.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::inline v0::data {

void RecordSource::fail_image(std::int64_t /*record_id*/, const Error& error) const {
  throw Error(error);
}

void read_stored(const RecordSource& source, std::int64_t record_id, Sample& sample,
                 StoredImage& image) {
  image.bytes = {};
  image.is_encoded = false;
  image.source = nullptr;
  image.is_mapped = false;
  struct Request {  // ends with the call, also by an exception
    Sample& sample;
    ~Request() { sample.image = nullptr; }
  } const request{sample};
  sample.image = &image;
  source.read(record_id, sample);
}

std::string text_of_labels(std::int64_t lowest, std::int64_t highest) {
  if (lowest <= 0 || lowest > highest) return "";
  return fmt::format(", labels from {} to {} ({} classes, none of class 0)", lowest, highest,
                     highest + 1);
}

std::optional<std::size_t> different_feature(const std::vector<std::string>& names,
                                             const std::vector<std::string>& others) {
  const auto is_number = [](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos;
  };
  for (std::size_t i = 0; i < std::min(names.size(), others.size()); ++i)
    if (names[i] != others[i] && !is_number(names[i]) && !is_number(others[i])) return i;
  return std::nullopt;
}

}  // namespace lockstep::inline v0::data
