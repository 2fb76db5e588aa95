#include "lockstep/data/source/joined_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::data {
namespace {

std::string text_of(const SampleSpec& spec) {
  return fmt::format(
      "[{}] with {}", fmt::join(spec.shape, ", "),
      spec.targets > 0 ? fmt::format("{} targets", spec.targets) : fmt::format("{} classes", spec.classes));
}

template <typename TextOf>
std::string joined(const std::vector<std::shared_ptr<const RecordSource>>& inputs, TextOf text_of_input) {
  std::vector<std::string> texts;
  for (const auto& input : inputs) texts.push_back(text_of_input(*input));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::string_view word,
                           std::string how)
    : inputs_(std::move(inputs)), how_(std::move(how)) {
  LOCKSTEP_CHECK_OP(inputs_.size(), >=, 1u);
  const SampleSpec& first = inputs_.front()->spec();
  for (const auto& input : inputs_) {
    if (input->spec() != first)
      throw Error(
          ErrorCategory::input, word,
          fmt::format("expected data sets of samples {}, as in {}", text_of(first), inputs_.front()->description()),
          fmt::format("the samples of {} are {}", input->description(), text_of(input->spec())));
    if (__builtin_add_overflow(size_, input->size(), &size_))
      throw Error(ErrorCategory::input, word, "expected fewer than 2^63 records", "the data sets have more in total");
    const auto names = input->class_names();
    if (class_names_.empty()) class_names_ = names;
    if (!names.empty() && names != class_names_)
      throw Error(ErrorCategory::input, word,
                  fmt::format("expected data sets of the same classes, {}", fmt::join(class_names_, ", ")),
                  fmt::format("the classes of {} are {}", input->description(), fmt::join(names, ", ")));
    has_encoded_images_ = has_encoded_images_ && input->has_encoded_images();
    has_images_ = has_images_ && input->has_images() && input->normalization() == inputs_.front()->normalization();
  }
}

ChannelNormalization JoinedSource::normalization() const {
  return has_images_ ? inputs_.front()->normalization() : ChannelNormalization();
}

std::vector<DamagedFile> JoinedSource::damage() const {
  std::vector<DamagedFile> damage;
  for (const auto& input : inputs_) {
    const auto more = input->damage();
    damage.insert(damage.end(), more.begin(), more.end());
  }
  return damage;
}

std::vector<std::int64_t> JoinedSource::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const auto& input : inputs_) sizes.push_back(input->size());
  return sizes;
}

void JoinedSource::read_of(std::size_t input, std::int64_t index, Sample& sample) const {
  if (input > 0) sample.seed = random_key(sample.seed, "input", input);
  inputs_[input]->read(index, sample);
}

std::string JoinedSource::description() const {
  return fmt::format("({}) {}", joined(inputs_, [](const RecordSource& input) { return input.description(); }), how_);
}

std::string JoinedSource::preparation() const {
  return fmt::format(", {} data sets {} ({})", inputs_.size(), how_, joined(inputs_, [](const RecordSource& input) {
                       return fmt::format("{} records{}", input.size(), input.preparation());
                     }));
}

ConcatenatedSource::ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs)
    : JoinedSource(std::move(inputs), "concatenate", "one after the other"), ends_(sizes()) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

void ConcatenatedSource::read(std::int64_t record_id, Sample& sample) const {
  const auto input = static_cast<std::size_t>(std::ranges::upper_bound(ends_, record_id) - ends_.begin());
  read_of(input, input == 0 ? record_id : record_id - ends_[input - 1], sample);
}

namespace {

constexpr const char* kWord = "interleave";

std::vector<std::shared_ptr<const RecordSource>> checked(std::vector<std::shared_ptr<const RecordSource>> inputs,
                                                         std::int64_t cycle_length, std::int64_t block_length) {
  const auto require = [](std::int64_t actual, std::string_view expected) {
    if (actual < 1) throw Error(ErrorCategory::input, kWord, expected, fmt::format("got {}", actual));
  };
  require(static_cast<std::int64_t>(inputs.size()), "expected at least 1 data set");
  require(cycle_length, "expected a cycle of at least 1 data set");
  require(block_length, "expected blocks of at least 1 record");
  return inputs;
}

}  // namespace

InterleavedSource::InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::int64_t cycle_length,
                                     std::int64_t block_length)
    : JoinedSource(checked(std::move(inputs), cycle_length, block_length), kWord,
                   fmt::format("interleaved, {} at a time, in blocks of {}", cycle_length, block_length)),
      order_(sizes(), cycle_length, block_length) {}

void InterleavedSource::read(std::int64_t record_id, Sample& sample) const {
  const InterleaveOrder::Place place = order_[record_id];
  read_of(place.input, place.index, sample);
}

}  // namespace lockstep::data
