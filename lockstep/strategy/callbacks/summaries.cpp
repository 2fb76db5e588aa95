#include "lockstep/strategy/callbacks/summaries.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <protozero/pbf_builder.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/data/image/encode_png.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/strategy/callbacks/confusion_image.h"

namespace lockstep::strategy {
namespace {

// Field numbers of the messages (tensorflow's event.proto, summary.proto, tensor.proto) that an
// event file needs.
using Tag = protozero::pbf_tag_type;
enum class Event : Tag { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 };
enum class SessionLog : Tag { status = 1 };
enum class Summary : Tag { value = 1 };
enum class Value : Tag { tag = 1, tensor = 8, metadata = 9 };
enum class Metadata : Tag { plugin_data = 1 };
enum class Plugin : Tag { name = 1 };
enum class Tensor : Tag { dtype = 1, shape = 2, float_val = 5, string_val = 8 };
enum class TensorShape : Tag { dim = 2 };
enum class Dim : Tag { size = 1 };

constexpr std::int32_t kFloatType = 1;
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
  protozero::pbf_builder<Event> event(bytes);
  event.add_double(Event::wall_time, wall_time);
  event.add_string(Event::file_version, "brain.Event:2");
  return bytes;
}

/// SummaryMetadata. data_class is not set: TensorBoard then derives it from the plugin.
std::string plugin_metadata(std::string_view plugin) {
  std::string bytes;
  protozero::pbf_builder<Metadata> metadata(bytes);
  protozero::pbf_builder<Plugin>(metadata, Metadata::plugin_data)
      .add_string(Plugin::name, plugin.data(), plugin.size());
  return bytes;
}

}  // namespace

SummaryWriter::SummaryWriter(const std::filesystem::path& directory)
    : last_flush_(std::chrono::steady_clock::now()) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(directory, error.value());
  const double now = seconds_since_1970();
  // Several writers of one process may start in the same second; use the first free number.
  for (int number = 0; !file_.is_open(); ++number) {
    path_ =
        directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}.v2",
                                static_cast<std::int64_t>(now), host_name(), ::getpid(), number);
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
    // Callers that need the error call flush() before.
  }
}

void SummaryWriter::begin_run(std::int64_t step) {
  std::string bytes;
  {
    protozero::pbf_builder<Event> event(bytes);
    event.add_double(Event::wall_time, seconds_since_1970());
    event.add_int64(Event::step, step);
    protozero::pbf_builder<SessionLog>(event, Event::session_log)
        .add_enum(SessionLog::status, kSessionStart);
  }
  data::append_record(pending_, bytes);
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

// As tf.summary.image(): the texts of width and height, and one image.
void SummaryWriter::image(std::string_view tag, std::int64_t step, const data::ImageView& pixels,
                          std::optional<double> wall_time) {
  const std::string strings[] = {std::to_string(pixels.width), std::to_string(pixels.height),
                                 data::to_png(pixels)};
  std::string bytes;
  protozero::pbf_builder<Tensor> tensor(bytes);
  tensor.add_enum(Tensor::dtype, kStringType);
  {
    protozero::pbf_builder<TensorShape> shape(tensor, Tensor::shape);
    protozero::pbf_builder<Dim>(shape, TensorShape::dim).add_int64(Dim::size, std::ssize(strings));
  }
  for (const std::string& value : strings) tensor.add_bytes(Tensor::string_val, value);
  add(tag, "images", step, bytes, wall_time);
}

void SummaryWriter::add(std::string_view tag, std::string_view plugin, std::int64_t step,
                        std::string_view tensor, std::optional<double> wall_time) {
  std::string bytes;
  {
    protozero::pbf_builder<Event> event(bytes);
    event.add_double(Event::wall_time, wall_time.value_or(seconds_since_1970()));
    event.add_int64(Event::step, step);
    protozero::pbf_builder<Summary> summary(event, Event::summary);
    protozero::pbf_builder<Value> item(summary, Summary::value);
    item.add_string(Value::tag, tag.data(), tag.size());
    if (known_tags_.emplace(tag).second) item.add_message(Value::metadata, plugin_metadata(plugin));
    item.add_message(Value::tensor, tensor.data(), tensor.size());
  }
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
    // Later events must repeat the metadata and the version event that may be lost.
    known_tags_.clear();
    if (good_bytes_ == 0) data::append_record(pending_, version_event(seconds_since_1970()));
    throw;
  }
  pending_.clear();
  pending_events_ = 0;
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

Summaries::Summaries(const std::filesystem::path& directory, std::int64_t log_every,
                     const std::string& configuration, std::shared_ptr<Logger> logger)
    : directory_(directory),
      log_every_(log_every),
      configuration_(configuration),
      logger_(logger ? std::move(logger) : make_logger()),
      train_(directory / "train") {}

void Summaries::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      logger_->warn("{}; the training continues, and summaries are tried again", error.what());
  }
}

void Summaries::add(SummaryWriter& writer, std::string_view tag, std::int64_t step, double value) {
  attempt([&] { writer.scalar(tag, step, value); });
}

void Summaries::add_values(SummaryWriter& writer, std::int64_t step,
                           std::span<const model::MetricValue> values,
                           const std::function<std::string(const std::string& name)>& tag) {
  for (const model::MetricValue& value : values) {
    if (value.is_single()) add(writer, tag(value.name), step, value.values.front());
    if (has_image(value))
      attempt([&] { writer.image(tag(value.name), step, confusion_image(value).view()); });
  }
}

void Summaries::add_epoch(SummaryWriter& writer, std::int64_t epoch,
                          const model::MetricSums& metrics,
                          const std::vector<model::MetricValue>& values) {
  if (metrics.samples == 0) return;  // there are no means
  add_values(writer, epoch, values, [](const std::string& name) { return "epoch_" + name; });
  add(writer, "epoch_loss", epoch, metrics.loss());
  if (!metrics.has_accuracy) return;
  add(writer, "epoch_accuracy", epoch, metrics.accuracy());
  add(writer, "epoch_top5_accuracy", epoch, metrics.top5_accuracy());
}

void Summaries::flush(SummaryWriter& writer) {
  attempt([&] { writer.flush(); });
}

void Summaries::on_train_begin(const TrainBegin& begin) {
  // A resumed run repeats no step up to first_step; a new one replaces what is in the directory.
  const std::int64_t first = begin.first_step > 0 ? begin.first_step + 1 : 0;
  train_.begin_run(first);
  attempt([&] { train_.text("configuration", first, configuration_); });
  flush(train_);
}

void Summaries::on_batch_end(const StepLogs& logs) {
  if (logs.skipped || log_every_ == 0 || logs.step % log_every_ != 0) return;
  add(train_, "batch_loss", logs.step, logs.metrics.loss());
  if (logs.metrics.has_accuracy) add(train_, "batch_accuracy", logs.step, logs.metrics.accuracy());
  add(train_, "batch_learning_rate", logs.step, logs.learning_rate);
}

void Summaries::on_epoch_end(const EpochLogs& logs) {
  if (!logs.complete) return flush(train_);  // a resumed run reports the whole epoch
  add_epoch(train_, logs.epoch, logs.metrics, logs.values);
  add(train_, "epoch_learning_rate", logs.epoch, logs.learning_rate);
  add(train_, "epoch_samples_per_second", logs.epoch, logs.samples_per_second);
  flush(train_);
  if (!logs.validation) return;
  if (!validation_)
    attempt([&] {
      validation_.emplace(directory_ / "validation");
      validation_->begin_run(logs.epoch);
    });
  if (!validation_) {
    unwritten_ += logs.validation->has_accuracy ? 3 : 1;
    unwritten_ += std::ranges::count_if(
        logs.validation_values,
        [](const model::MetricValue& value) { return value.is_single() || has_image(value); });
    return;
  }
  add_epoch(*validation_, logs.epoch, *logs.validation, logs.validation_values);
  flush(*validation_);
}

// To train_, which begins at the step where a run resumes: validation_ begins at an epoch, from
// which TensorBoard would drop all steps of the earlier run.
void Summaries::on_validation(const EpochLogs& logs) {
  const model::MetricSums& metrics = *logs.validation;
  add(train_, "evaluation_loss_vs_iterations", logs.step, metrics.loss());
  if (metrics.has_accuracy)
    add(train_, "evaluation_accuracy_vs_iterations", logs.step, metrics.accuracy());
  add_values(train_, logs.step, logs.validation_values, [](const std::string& name) {
    return fmt::format("evaluation_{}_vs_iterations", name);
  });
}

void Summaries::on_scalar(const ScalarLogs& logs) { add(train_, logs.name, logs.step, logs.value); }

void Summaries::on_checkpoint(const CheckpointLogs& /*logs*/) { flush(train_); }

void Summaries::on_train_end(const TrainEnd& /*end*/) {
  flush(train_);
  const std::int64_t lost =
      train_.lost_events() + (validation_ ? validation_->lost_events() : 0) + unwritten_;
  if (lost > 0)
    logger_->warn("[{}] {} points of the summaries are lost", directory_.string(), lost);
}

}  // namespace lockstep::strategy
