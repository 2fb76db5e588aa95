#include "lockstep/data/source/wrapped_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/system/process.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::data {

PreparedSource::PreparedSource(Pipeline pipeline)
    : WrappedSource(pipeline.source), pipeline_(std::move(pipeline)) {
  if (pipeline_.gives_pixels()) normalization_ = pipeline_.pixel_normalization();
}

void PreparedSource::read(std::int64_t record_id, Sample& sample) const {
  SampleReader reader(pipeline_);
  const SampleKey key = {sample.seed, sample.epoch, record_id};
  if (sample.image == nullptr) return reader.read(key, sample);
  // Another recipe follows and receives the pixels of this one.
  const auto pixels = sample.image->allocate(spec().feature_count());
  Sample inner = sample;
  inner.image = nullptr;
  inner.inputs.front().type = ElementType::uint8;
  inner.inputs.front().data = reinterpret_cast<std::byte*>(pixels.data());
  inner.inputs.front().elements = pixels.size();
  reader.read(key, inner);
  std::swap(inner.inputs.front(), sample.inputs.front());
  inner.image = sample.image;
  sample = std::move(inner);  // with the lengths of ragged tensors
}

RangeSource::RangeSource(std::shared_ptr<const RecordSource> source, Range records,
                         std::string word)
    : WrappedSource(std::move(source), std::move(word)), records_(records) {
  LOCKSTEP_CHECK(records.begin >= 0 && records.begin <= records.end &&
                 records.end <= this->source().size());
}

PaddedSource::PaddedSource(std::shared_ptr<const RecordSource> source, std::string_view name,
                           std::int64_t length)
    : WrappedSource(std::move(source), fmt::format("{} padded to {}", name, length)),
      spec_(this->source().spec()) {
  is_target_ = std::ranges::find(spec_.targets, name, &TensorSpec::name) != spec_.targets.end();
  auto& tensors = is_target_ ? spec_.targets : spec_.inputs;
  TensorSpec& tensor = find_tensor(std::span(tensors), "pad", name);
  if (!tensor.is_ragged())
    throw Error(ErrorCategory::input, "pad", "expected a tensor whose first extent is unknown",
                fmt::format("got {}", to_string(tensor)));
  index_ = static_cast<std::size_t>(&tensor - tensors.data());
  unit_ = static_cast<std::size_t>(element_count(std::span(tensor.shape).subspan(1)));
  tensor.shape.front() = length;
  pads_masked_ = is_target_ && tensor.classes > 0;
  check_shape(tensor.shape, "pad");
}

void PaddedSource::read(std::int64_t record_id, Sample& sample) const {
  const TensorView fixed = padded(sample);
  Sample whole = sample;
  RaggedRow row;
  padded(whole).unit = unit_;
  padded(whole).attach(row);
  source().read(record_id, whole);
  TensorView& ragged = padded(whole);  // the source may have moved it
  const std::size_t count = std::min(fixed.elements, ragged.elements);
  if (fixed.type == ElementType::bytes) {
    const std::span<std::string> to = fixed.as<std::string>();
    std::ranges::fill(std::ranges::copy(ragged.as<std::string>().first(count), to.begin()).out,
                      to.end(), std::string());
  } else {
    const std::size_t size = element_bytes(fixed.type);
    const std::span to(fixed.data, fixed.elements * size);
    std::ranges::fill(std::ranges::copy(std::span(ragged.data, count * size), to.begin()).out,
                      to.end(), padding_of(pads_masked_));
  }
  ragged = fixed;
  sample = std::move(whole);
}

RepeatedSource::RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times)
    : WrappedSource(std::move(source), fmt::format("{} times", times)), times_(times) {
  if (times < 1)
    throw Error(ErrorCategory::input, "repeat",
                "expected at least 1 repetition (a stream without a last step repeats its epochs "
                "indefinitely)",
                fmt::format("got {}", times));
  if (std::int64_t records = 0; __builtin_mul_overflow(this->source().size(), times, &records))
    throw Error(ErrorCategory::input, "repeat", "expected fewer than 2^63 records",
                fmt::format("{} times {} were requested", times, this->source().size()));
}

void RepeatedSource::read(std::int64_t record_id, Sample& sample) const {
  sample.epoch = sample.epoch * times_ + record_id / source().size();
  source().read(record_id % source().size(), sample);
}

namespace {

/// The ids of the selected records of a range, or the error that prevented it.
template <typename Id>
struct Kept {
  std::vector<Id> ids;
  std::exception_ptr error;
};

/// Examines `records` until `stop()`.
template <typename Id, typename Stop>
Kept<Id> look_at(const RecordSource& source, const SamplePredicate& keep, Range records,
                 Stop stop) {
  Kept<Id> kept;
  try {
    Batch one(source.spec());
    Sample sample = one.sample();
    for (std::int64_t record = records.begin; record < records.end && !stop(); ++record) {
      sample.weight = 1;
      sample.seed = 0;
      sample.epoch = 0;
      source.read(record, sample);
      if (keep(sample)) kept.ids.push_back(static_cast<Id>(record));
    }
  } catch (...) {
    kept.error = std::current_exception();
  }
  return kept;
}

/// Each thread examines a run of adjacent records, so that files are read from front to back.
template <typename Id>
std::vector<Id> ids_of(const RecordSource& source, const SamplePredicate& keep, int threads) {
  std::vector<Kept<Id>> parts(threads);
  std::atomic<std::size_t> first_failed = parts.size();  // parts after it can stop
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      workers.push_back(start_thread<std::jthread>("reading data", [&, i] {
        const Range records = split(source.size(), threads, static_cast<std::int64_t>(i));
        parts[i] = look_at<Id>(source, keep, records, [&] { return first_failed.load() < i; });
        if (!parts[i].error) return;
        for (std::size_t seen = first_failed;
             i < seen && !first_failed.compare_exchange_weak(seen, i);)
          continue;
      }));
    }
  }
  std::vector<Id> ids;
  for (Kept<Id>& part : parts) {
    if (part.error) std::rethrow_exception(part.error);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    part.ids = {};
  }
  ids.shrink_to_fit();
  return ids;
}

}  // namespace

FilteredSource::FilteredSource(std::shared_ptr<const RecordSource> source,
                               const SamplePredicate& keep, int threads)
    : WrappedSource(std::move(source)) {
  LOCKSTEP_CHECK_OP(threads, >=, 1);
  if (!keep) throw Error(ErrorCategory::input, "filter", "expected a predicate", "it is empty");
  if (this->source().size() <= std::numeric_limits<std::uint32_t>::max())
    ids_ = ids_of<std::uint32_t>(this->source(), keep, threads);
  else
    ids_ = ids_of<std::int64_t>(this->source(), keep, threads);
  set_word(
      fmt::format("{} of {} records by a filter", FilteredSource::size(), this->source().size()));
}

std::int64_t FilteredSource::size() const {
  return std::visit([](const auto& ids) { return static_cast<std::int64_t>(ids.size()); }, ids_);
}

std::int64_t FilteredSource::id_of(std::int64_t record_id) const {
  return std::visit([&](const auto& ids) { return static_cast<std::int64_t>(ids[record_id]); },
                    ids_);
}

void FilteredSource::read(std::int64_t record_id, Sample& sample) const {
  source().read(id_of(record_id), sample);
}

RenumberedSource::RenumberedSource(std::shared_ptr<const RecordSource> source,
                                   std::vector<std::string> names)
    : WrappedSource(std::move(source), "with renumbered classes"),
      names_(std::move(names)),
      spec_(this->source().spec()) {
  const std::vector<std::string> given = this->source().class_names();
  const std::string where = this->source().description();
  if (given.empty() || static_cast<std::int64_t>(given.size()) != spec_.classes())
    throw Error(ErrorCategory::data, where,
                fmt::format("expected names of its {} classes", spec_.classes()),
                fmt::format("there are {}", given.size()));
  for (const std::string& name : given) {
    const auto place = std::ranges::find(names_, name);
    if (place == names_.end())
      throw Error(ErrorCategory::data, where,
                  fmt::format("expected only the classes {}", fmt::join(names_, ", ")),
                  fmt::format("it has the class {}", name));
    numbers_.push_back(static_cast<std::int32_t>(place - names_.begin()));
  }
  spec_.targets.front().classes = static_cast<std::int64_t>(names_.size());
}

std::int32_t RenumberedSource::number_of(std::int32_t label, std::int64_t record_id) const {
  if (label < 0 || label >= std::ssize(numbers_))
    throw Error(ErrorCategory::data, source().description(),
                fmt::format("expected labels 0 .. {}", std::ssize(numbers_) - 1),
                fmt::format("record {} has {}", record_id, label));
  return numbers_[static_cast<std::size_t>(label)];
}

namespace {

template <typename TextOf>
std::string joined(const std::vector<std::shared_ptr<const RecordSource>>& inputs,
                   TextOf text_of_input) {
  std::vector<std::string> texts;
  for (const auto& input : inputs) texts.push_back(text_of_input(*input));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs,
                           std::string_view word, std::string how)
    : inputs_(std::move(inputs)), how_(std::move(how)) {
  LOCKSTEP_CHECK_OP(inputs_.size(), >=, 1u);
  const SampleSpec& first = inputs_.front()->spec();
  for (const auto& input : inputs_) {
    if (input->spec() != first)
      throw Error(
          ErrorCategory::input, word,
          fmt::format("expected data sets of samples {}, as in {}", to_string(first),
                      inputs_.front()->description()),
          fmt::format("the samples of {} are {}", input->description(), to_string(input->spec())));
    if (__builtin_add_overflow(size_, input->size(), &size_))
      throw Error(ErrorCategory::input, word, "expected fewer than 2^63 records",
                  "the data sets have more in total");
    const auto names = input->class_names();
    if (class_names_.empty()) class_names_ = names;
    if (!names.empty() && names != class_names_)
      throw Error(
          ErrorCategory::input, word,
          fmt::format("expected data sets of the same classes, {}", fmt::join(class_names_, ", ")),
          fmt::format("the classes of {} are {}", input->description(), fmt::join(names, ", ")));
    const auto take_names = [&](std::vector<std::string>& known, const auto& others,
                                std::string_view what) {
      if (known.empty()) known = others;
      if (const auto other = different_feature(known, others))
        throw Error(ErrorCategory::input, word,
                    fmt::format("expected data sets of the same {}, number {} of which is {}", what,
                                *other + 1, known[*other]),
                    fmt::format("that of {} is {}", input->description(), others[*other]));
    };
    take_names(feature_names_, input->feature_names(), "features");
    take_names(target_names_, input->target_names(), "targets");
    const auto table = input->table();
    const auto first_table = inputs_.front()->table();
    if (table && first_table && !table->agrees_with(*first_table))
      throw Error(
          ErrorCategory::input, word,
          fmt::format("expected tables that are scaled alike, with the same values (read the "
                      "others with CsvOptions::schema or like= the first), as {}",
                      inputs_.front()->description()),
          fmt::format("those of {} differ", input->description()));
    const auto text = input->text();
    const auto first_text = inputs_.front()->text();
    if (text && first_text && !text->agrees_with(*first_text))
      throw Error(ErrorCategory::input, word,
                  fmt::format("expected texts of one tokenizer (read the others with "
                              "TextOptions::schema of the first), as {}",
                              inputs_.front()->description()),
                  fmt::format("that of {} differs", input->description()));
    has_encoded_images_ = has_encoded_images_ && input->has_encoded_images();
    has_images_ = has_images_ && input->has_images() &&
                  input->normalization() == inputs_.front()->normalization();
  }
}

ChannelNormalization JoinedSource::normalization() const {
  return has_images_ ? inputs_.front()->normalization() : ChannelNormalization();
}

bool JoinedSource::counts_classes() const {
  return std::ranges::all_of(inputs_, [](const auto& input) { return input->counts_classes(); });
}

RecordChanges JoinedSource::changes() const {
  RecordChanges all = inputs_.front()->changes();
  for (const auto& input : inputs_) {
    const RecordChanges changes = input->changes();
    const bool is_same = all.images && changes.images ? *all.images == *changes.images
                                                      : all.images == changes.images;
    all.is_mapped = all.is_mapped || changes.is_mapped || !is_same;
  }
  return all;
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
  return fmt::format("({}) {}",
                     joined(inputs_, [](const RecordSource& input) { return input.description(); }),
                     how_);
}

std::uint64_t JoinedSource::identity() const {
  constexpr std::uint64_t kPrime = 0x100000001b3;  // the order of the inputs counts
  std::uint64_t identity = 0;
  for (const auto& input : inputs_) identity = identity * kPrime + input->identity();
  return identity;
}

std::string JoinedSource::preparation() const {
  return fmt::format(", {} data sets {} ({})", inputs_.size(), how_,
                     joined(inputs_, [](const RecordSource& input) {
                       return fmt::format("{} records{}", input.size(), input.preparation());
                     }));
}

ConcatenatedSource::ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs)
    : JoinedSource(std::move(inputs), "concatenate", "one after the other"), ends_(sizes()) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

void ConcatenatedSource::read(std::int64_t record_id, Sample& sample) const {
  const auto input =
      static_cast<std::size_t>(std::ranges::upper_bound(ends_, record_id) - ends_.begin());
  read_of(input, input == 0 ? record_id : record_id - ends_[input - 1], sample);
}

namespace {

constexpr const char* kWord = "interleave";

std::vector<std::shared_ptr<const RecordSource>> checked(
    std::vector<std::shared_ptr<const RecordSource>> inputs, std::int64_t cycle_length,
    std::int64_t block_length) {
  const auto require = [](std::int64_t actual, std::string_view expected) {
    if (actual < 1)
      throw Error(ErrorCategory::input, kWord, expected, fmt::format("got {}", actual));
  };
  require(static_cast<std::int64_t>(inputs.size()), "expected at least 1 data set");
  require(cycle_length, "expected a cycle of at least 1 data set");
  require(block_length, "expected blocks of at least 1 record");
  return inputs;
}

}  // namespace

InterleavedSource::InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs,
                                     std::int64_t cycle_length, std::int64_t block_length)
    : JoinedSource(
          checked(std::move(inputs), cycle_length, block_length), kWord,
          fmt::format("interleaved, {} at a time, in blocks of {}", cycle_length, block_length)),
      order_(sizes(), cycle_length, block_length) {}

void InterleavedSource::read(std::int64_t record_id, Sample& sample) const {
  const InterleaveOrder::Place place = order_[record_id];
  read_of(place.input, place.index, sample);
}

}  // namespace lockstep::data
