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
#include "lockstep/base/system/process.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {

PreparedSource::PreparedSource(Pipeline pipeline)
    : WrappedSource(pipeline.source), pipeline_(std::move(pipeline)) {
  describe(pipeline_.preparation());
  info_.spec = pipeline_.spec;
  info_.changes = pipeline_.changes();
  info_.has_images = pipeline_.keeps_pixels();
  info_.has_encoded_images = false;
  info_.normalization = info_.has_images ? pipeline_.pixel_normalization() : ChannelNormalization();
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
                         std::string_view word)
    : WrappedSource(std::move(source)), records_(records) {
  LOCKSTEP_CHECK(records.begin >= 0 && records.begin <= records.end &&
                 records.end <= this->source().size());
  describe(fmt::format(", {}", word));
  info_.size = records.size();
  info_.files.clear();
}

PaddedSource::PaddedSource(std::shared_ptr<const RecordSource> source, std::string_view name,
                           std::int64_t length)
    : WrappedSource(std::move(source)) {
  describe(fmt::format(", {} padded to {}", name, length));
  SampleSpec& spec = info_.spec;
  is_target_ = std::ranges::find(spec.targets, name, &TensorSpec::name) != spec.targets.end();
  auto& tensors = is_target_ ? spec.targets : spec.inputs;
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
  TensorView& ragged = padded(whole);  // the source may have reallocated it
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

AutoencodedSource::AutoencodedSource(std::shared_ptr<const RecordSource> source)
    : WrappedSource(std::move(source)) {
  describe(", reconstructed");
  const TensorSpec& input = info_.spec.inputs.front();
  if (input.type != ElementType::float32 || !input.has_fixed_size())
    throw Error(ErrorCategory::input, "autoencoder",
                "expected a first input of numbers, all of one size", "got " + to_string(input));
  info_.spec.targets = {input};
  info_.spec.targets.front().name = "reconstruction of " + input.name;
  info_.target_names = info_.feature_names;
  info_.class_names.clear();
  info_.has_images = info_.has_encoded_images = false;  // read() delivers features
  info_.normalization = {};
}

void AutoencodedSource::read(std::int64_t record_id, Sample& sample) const {
  Batch own(source().spec());
  Sample whole = own.sample();
  whole.inputs = sample.inputs;
  whole.seed = sample.seed;
  whole.epoch = sample.epoch;
  source().read(record_id, whole);
  std::ranges::copy(whole.features(), sample.values().begin());
  sample.inputs = std::move(whole.inputs);  // with the lengths of ragged ones
  sample.weight = whole.weight;
}

RepeatedSource::RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times)
    : WrappedSource(std::move(source)), times_(times) {
  if (times < 1)
    throw Error(ErrorCategory::input, "repeat",
                "expected at least 1 repetition (a stream without a last step repeats its epochs "
                "indefinitely)",
                fmt::format("got {}", times));
  if (__builtin_mul_overflow(this->source().size(), times, &info_.size))
    throw Error(ErrorCategory::input, "repeat", "expected fewer than 2^63 records",
                fmt::format("{} times {} were requested", times, this->source().size()));
  describe(fmt::format(", {} times", times));
  info_.files.clear();
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
Kept<Id> select_records(const RecordSource& source, const SamplePredicate& keep, Range records,
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
        parts[i] =
            select_records<Id>(source, keep, records, [&] { return first_failed.load() < i; });
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
  info_.size = std::visit([](const auto& ids) { return std::ssize(ids); }, ids_);
  describe(fmt::format(", {} of {} records by a filter", size(), this->source().size()));
  info_.changes.is_mapped = true;
  info_.files.clear();
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
    : WrappedSource(std::move(source)) {
  const std::vector<std::string>& class_names = this->source().info().class_names;
  const std::string& where = info_.description;
  if (class_names.empty() || std::ssize(class_names) != spec().classes())
    throw Error(ErrorCategory::data, where,
                fmt::format("expected names of its {} classes", spec().classes()),
                fmt::format("there are {}", class_names.size()));
  for (const std::string& name : class_names) {
    const auto position = std::ranges::find(names, name);
    if (position == names.end())
      throw Error(ErrorCategory::data, where,
                  fmt::format("expected only the classes {}", fmt::join(names, ", ")),
                  fmt::format("it has the class {}", name));
    numbers_.push_back(static_cast<std::int32_t>(position - names.begin()));
  }
  describe(", with renumbered classes");
  info_.spec.targets.front().classes = std::ssize(names);
  info_.class_names = std::move(names);
}

std::int32_t RenumberedSource::number_of(std::int32_t label, std::int64_t record_id) const {
  if (label < 0 || label >= std::ssize(numbers_))
    throw Error(ErrorCategory::data, source().info().description,
                fmt::format("expected labels 0 .. {}", std::ssize(numbers_) - 1),
                fmt::format("record {} has {}", record_id, label));
  return numbers_[static_cast<std::size_t>(label)];
}

namespace {

/// Extends `all` to the records of `input`; `word` names the operation in errors.
void join(SourceInfo& all, const SourceInfo& input, std::string_view word) {
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCategory::input, word, "expected " + expected, actual);
  };
  if (input.spec != all.spec)
    refuse(fmt::format("data sets of samples {}, as in {}", to_string(all.spec), all.description),
           fmt::format("the samples of {} are {}", input.description, to_string(input.spec)));
  if (__builtin_add_overflow(all.size, input.size, &all.size))
    refuse("fewer than 2^63 records", "the data sets have more in total");
  if (all.class_names.empty()) all.class_names = input.class_names;
  if (!input.class_names.empty() && input.class_names != all.class_names)
    refuse(fmt::format("data sets of the same classes, {}", fmt::join(all.class_names, ", ")),
           fmt::format("the classes of {} are {}", input.description,
                       fmt::join(input.class_names, ", ")));
  const auto join_names = [&](std::vector<std::string>& known,
                              const std::vector<std::string>& others, std::string_view what) {
    if (known.empty()) known = others;
    if (const auto other = different_feature(known, others))
      refuse(fmt::format("data sets of the same {}, number {} of which is {}", what, *other + 1,
                         known[*other]),
             fmt::format("that of {} is {}", input.description, others[*other]));
  };
  join_names(all.feature_names, input.feature_names, "features");
  join_names(all.target_names, input.target_names, "targets");
  if (input.table && all.table && !input.table->agrees_with(*all.table))
    refuse(fmt::format("tables that are scaled alike, with the same values (read the others with "
                       "CsvOptions::schema or like= the first), as {}",
                       all.description),
           fmt::format("those of {} differ", input.description));
  if (input.text && all.text && !input.text->agrees_with(*all.text))
    refuse(fmt::format("texts of one tokenizer (read the others with TextOptions::schema of the "
                       "first), as {}",
                       all.description),
           fmt::format("that of {} differs", input.description));
  all.has_encoded_images = all.has_encoded_images && input.has_encoded_images;
  all.has_images = all.has_images && input.has_images && input.normalization == all.normalization;
  all.counts_classes = all.counts_classes && input.counts_classes;
  const RecordChanges& changes = input.changes;
  const bool is_same = all.changes.images && changes.images ? *all.changes.images == *changes.images
                                                            : all.changes.images == changes.images;
  all.changes.is_mapped = all.changes.is_mapped || changes.is_mapped || !is_same;
  all.damage.insert(all.damage.end(), input.damage.begin(), input.damage.end());
  constexpr std::uint64_t kPrime = 0x100000001b3;  // the order of the inputs counts
  all.identity = all.identity * kPrime + input.identity;
}

}  // namespace

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs,
                           std::string_view word, std::string_view how)
    : inputs_(std::move(inputs)) {
  LOCKSTEP_CHECK_OP(inputs_.size(), >=, 1u);
  info_ = inputs_.front()->info();
  std::vector<std::string> descriptions;
  std::vector<std::string> preparations;
  for (const auto& input : inputs_) {
    if (&input != &inputs_.front()) join(info_, input->info(), word);
    descriptions.push_back(input->info().description);
    preparations.push_back(fmt::format("{} records{}", input->size(), input->info().preparation));
  }
  if (!info_.has_images) info_.normalization = {};
  info_.description = fmt::format("({}) {}", fmt::join(descriptions, "; "), how);
  info_.preparation =
      fmt::format(", {} data sets {} ({})", inputs_.size(), how, fmt::join(preparations, "; "));
  info_.files.clear();
}

std::vector<std::int64_t> JoinedSource::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const auto& input : inputs_) sizes.push_back(input->size());
  return sizes;
}

void JoinedSource::read_input(std::size_t input, std::int64_t index, Sample& sample) const {
  if (input > 0) sample.seed = random_key(sample.seed, "input", input);
  inputs_[input]->read(index, sample);
}

ConcatenatedSource::ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs)
    : JoinedSource(std::move(inputs), "concatenate", "one after the other"), ends_(sizes()) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

void ConcatenatedSource::read(std::int64_t record_id, Sample& sample) const {
  const auto input =
      static_cast<std::size_t>(std::ranges::upper_bound(ends_, record_id) - ends_.begin());
  read_input(input, input == 0 ? record_id : record_id - ends_[input - 1], sample);
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
  const InterleaveOrder::Position position = order_[record_id];
  read_input(position.input, position.index, sample);
}

}  // namespace lockstep::inline v0::data
