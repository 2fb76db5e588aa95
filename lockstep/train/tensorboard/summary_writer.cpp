#include "lockstep/train/tensorboard/summary_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <protozero/pbf_builder.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/data/image/encode_png.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::train {
namespace {

// Field numbers of the messages (tensorflow's event.proto, summary.proto, tensor.proto) that an
// event file needs.
using Tag = protozero::pbf_tag_type;
enum class EventTag : Tag {
  wall_time = 1,
  step = 2,
  file_version = 3,
  graph = 4,
  summary = 5,
  session_log = 7
};
enum class SessionLog : Tag { status = 1 };
enum class Summary : Tag { value = 1 };
enum class Value : Tag { tag = 1, tensor = 8, metadata = 9 };
enum class Metadata : Tag { plugin_data = 1 };
enum class Plugin : Tag { name = 1, content = 2 };
enum class Tensor : Tag { dtype = 1, shape = 2, float_val = 5, double_val = 6, string_val = 8 };
enum class TensorShape : Tag { dim = 2 };
enum class Dim : Tag { size = 1 };

constexpr std::int32_t kFloatType = 1;
constexpr std::int32_t kDoubleType = 2;
constexpr std::int32_t kStringType = 7;
constexpr std::int32_t kSessionStart = 1;
constexpr std::size_t kFlushBytes = 64 << 10;
constexpr std::chrono::seconds kFlushInterval{1};

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw Error(ErrorCategory::data, path.string(), "expected to write the summary",
              std::generic_category().message(error));
}

/// The first event of every file.
std::string version_event(double wall_time) {
  std::string bytes;
  protozero::pbf_builder<EventTag> event(bytes);
  event.add_double(EventTag::wall_time, wall_time);
  event.add_string(EventTag::file_version, "brain.Event:2");
  return bytes;
}

/// SummaryMetadata. data_class is not set: TensorBoard then derives it from the plugin.
std::string plugin_metadata(std::string_view plugin, std::string_view content = {}) {
  std::string bytes;
  {
    protozero::pbf_builder<Metadata> metadata(bytes);
    protozero::pbf_builder<Plugin> data(metadata, Metadata::plugin_data);
    data.add_string(Plugin::name, plugin.data(), plugin.size());
    if (!content.empty()) data.add_bytes(Plugin::content, content.data(), content.size());
  }
  return bytes;
}

void add_shape(protozero::pbf_builder<Tensor>& tensor,
               std::initializer_list<std::int64_t> extents) {
  protozero::pbf_builder<TensorShape> shape(tensor, Tensor::shape);
  for (const std::int64_t extent : extents)
    protozero::pbf_builder<Dim>(shape, TensorShape::dim).add_int64(Dim::size, extent);
}

}  // namespace

std::vector<HistogramBucket> histogram_of(std::span<const float> values) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::int64_t count = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
    ++count;
  }
  if (count == 0) return {};
  if (low == high) return {{low - 0.5, high + 0.5, static_cast<double>(count)}};
  const double width = (high - low) / kHistogramBuckets;
  std::vector<HistogramBucket> buckets(kHistogramBuckets);
  for (int i = 0; i < kHistogramBuckets; ++i)
    buckets[static_cast<std::size_t>(i)] = {
        low + i * width, i + 1 == kHistogramBuckets ? high : low + (i + 1) * width, 0};
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const auto place = static_cast<int>((value - low) / width);
    ++buckets[static_cast<std::size_t>(std::min(place, kHistogramBuckets - 1))].count;
  }
  return buckets;
}

SummaryWriter::SummaryWriter(const std::filesystem::path& directory, std::string_view suffix)
    : last_flush_(std::chrono::steady_clock::now()) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(directory, error.value());
  const double now = seconds_since_1970();
  // Several writers of one process may start in the same second; use the first free number.
  for (int number = 0; !file_.is_open(); ++number) {
    path_ = directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}.{}",
                                    static_cast<std::int64_t>(now), host_name(), ::getpid(), number,
                                    suffix);
    file_ = FileDescriptor(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.is_open() && errno != EEXIST) fail(path_, errno);
  }
  data::append_record(pending_, version_event(now));
  try {
    flush();
  } catch (const Error&) {
    // The next flush tries again.
  }
}

SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&& other) noexcept {
  std::destroy_at(this);  // flushes
  return *std::construct_at(this, std::move(other));
}

SummaryWriter::~SummaryWriter() {
  if (!file_.is_open()) return;
  try {
    flush();
  } catch (const Error&) {
    // Callers that need the error call flush() first.
  }
}

void SummaryWriter::begin_run(std::int64_t step) {
  std::string bytes;
  {
    protozero::pbf_builder<EventTag> event(bytes);
    event.add_double(EventTag::wall_time, seconds_since_1970());
    event.add_int64(EventTag::step, step);
    protozero::pbf_builder<SessionLog>(event, EventTag::session_log)
        .add_enum(SessionLog::status, kSessionStart);
  }
  data::append_record(pending_, bytes);
  unwritten_start_ = std::move(bytes);
}

void SummaryWriter::scalar(std::string_view tag, std::int64_t step, double value,
                           std::optional<double> wall_time) {
  std::string bytes;
  protozero::pbf_builder<Tensor> tensor(bytes);
  tensor.add_enum(Tensor::dtype, kFloatType);
  tensor.add_message(Tensor::shape, std::string());
  const float values[] = {static_cast<float>(value)};
  tensor.add_packed_float(Tensor::float_val, std::begin(values), std::end(values));
  add(tag, "scalars", step, bytes, wall_time);
}

void SummaryWriter::text(std::string_view tag, std::int64_t step, std::string_view value,
                         std::optional<double> wall_time) {
  std::string bytes;
  protozero::pbf_builder<Tensor> tensor(bytes);
  tensor.add_enum(Tensor::dtype, kStringType);
  tensor.add_message(Tensor::shape, std::string());
  tensor.add_bytes(Tensor::string_val, value.data(), value.size());
  add(tag, "text", step, bytes, wall_time);
}

// As tf.summary.histogram(): a row [low, high, count] for each bucket.
void SummaryWriter::histogram(std::string_view tag, std::int64_t step,
                              std::span<const float> values, std::optional<double> wall_time) {
  const std::vector<HistogramBucket> buckets = histogram_of(values);
  if (buckets.empty()) return;
  std::vector<double> rows;
  for (const HistogramBucket& bucket : buckets)
    rows.insert(rows.end(), {bucket.low, bucket.high, bucket.count});
  std::string bytes;
  protozero::pbf_builder<Tensor> tensor(bytes);
  tensor.add_enum(Tensor::dtype, kDoubleType);
  add_shape(tensor, {std::ssize(buckets), 3});
  tensor.add_packed_double(Tensor::double_val, rows.begin(), rows.end());
  add(tag, "histograms", step, bytes, wall_time);
}

// As tf.summary.image(): the texts of width and height, and one image.
void SummaryWriter::image(std::string_view tag, std::int64_t step, const data::ImageView& pixels,
                          std::optional<double> wall_time) {
  const std::string strings[] = {std::to_string(pixels.width), std::to_string(pixels.height),
                                 data::to_png(pixels)};
  std::string bytes;
  protozero::pbf_builder<Tensor> tensor(bytes);
  tensor.add_enum(Tensor::dtype, kStringType);
  add_shape(tensor, {std::ssize(strings)});
  for (const std::string& value : strings) tensor.add_bytes(Tensor::string_val, value);
  add(tag, "images", step, bytes, wall_time);
}

void SummaryWriter::add(std::string_view tag, std::string_view plugin, std::int64_t step,
                        std::string_view tensor, std::optional<double> wall_time) {
  std::string bytes;
  {
    protozero::pbf_builder<EventTag> event(bytes);
    event.add_double(EventTag::wall_time, wall_time.value_or(seconds_since_1970()));
    event.add_int64(EventTag::step, step);
    protozero::pbf_builder<Summary> summary(event, EventTag::summary);
    protozero::pbf_builder<Value> item(summary, Summary::value);
    item.add_string(Value::tag, tag.data(), tag.size());
    if (known_tags_.emplace(tag).second) item.add_message(Value::metadata, plugin_metadata(plugin));
    item.add_message(Value::tensor, tensor.data(), tensor.size());
  }
  add_event(bytes);
}

void SummaryWriter::graph(std::int64_t step, std::string_view definition) {
  std::string bytes;
  {
    protozero::pbf_builder<EventTag> event(bytes);
    event.add_double(EventTag::wall_time, seconds_since_1970());
    event.add_int64(EventTag::step, step);
    event.add_bytes(EventTag::graph, definition.data(), definition.size());
  }
  add_event(bytes);
}

void SummaryWriter::plugin_data(std::string_view tag, std::string_view plugin,
                                std::string_view content) {
  std::string bytes;
  {
    protozero::pbf_builder<EventTag> event(bytes);
    event.add_double(EventTag::wall_time, seconds_since_1970());
    event.add_int64(EventTag::step, 0);
    protozero::pbf_builder<Summary> summary(event, EventTag::summary);
    protozero::pbf_builder<Value> item(summary, Summary::value);
    item.add_string(Value::tag, tag.data(), tag.size());
    // As hparams_pb(): one empty extent, no values.
    std::string empty;
    {
      protozero::pbf_builder<Tensor> tensor(empty);
      tensor.add_enum(Tensor::dtype, kFloatType);
      add_shape(tensor, {0});
    }
    item.add_message(Value::tensor, empty);
    item.add_message(Value::metadata, plugin_metadata(plugin, content));
  }
  add_event(bytes);
}

void SummaryWriter::add_event(const std::string& bytes) {
  data::append_record(pending_, bytes);
  ++pending_events_;
  if (pending_.size() >= kFlushBytes ||
      std::chrono::steady_clock::now() - last_flush_ >= kFlushInterval)
    flush();
}

void SummaryWriter::flush() {
  last_flush_ = std::chrono::steady_clock::now();
  try {
    write(pending_);
  } catch (const Error&) {
    lost_events_ += std::exchange(pending_events_, 0);
    pending_.clear();
    // Later events must repeat the metadata, and follow the version and the beginning of the run.
    known_tags_.clear();
    if (good_bytes_ == 0) data::append_record(pending_, version_event(seconds_since_1970()));
    if (!unwritten_start_.empty()) data::append_record(pending_, unwritten_start_);
    throw;
  }
  pending_.clear();
  pending_events_ = 0;
  unwritten_start_.clear();
}

void SummaryWriter::write(std::string_view bytes) {
  // An incomplete record would make all following records unreadable.
  if (torn_ && ::ftruncate(file_.get(), good_bytes_) != 0) fail(path_, errno);
  torn_ = false;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      const int error = errno;
      torn_ = ::ftruncate(file_.get(), good_bytes_) != 0;
      fail(path_, error);
    }
  }
  good_bytes_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace lockstep::inline v0::train
