// Event files of TensorBoard. An event file is a TFRecord file of tensorflow.Event messages that
// grows during training.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/data/image/image.h"

namespace lockstep::inline v0::train {

/// A bucket of a histogram.
struct HistogramBucket {
  double low = 0;    ///< lower edge
  double high = 0;   ///< upper edge
  double count = 0;  ///< number of values; the last bucket includes its upper edge

  bool operator==(const HistogramBucket&) const = default;
};

/// Maximum number of buckets of a histogram, as in TensorFlow.
inline constexpr int kHistogramBuckets = 30;

/// Returns the distribution of the finite `values` in buckets of equal width from the smallest to
/// the largest value, as tf.summary.histogram() does: a single bucket of width 1 if all values are
/// equal, none without values.
std::vector<HistogramBucket> histogram_of(std::span<const float> values);

/// Appends to one event file. As in Keras, there is one writer for DIR/train and one for
/// DIR/validation, with tags such as "epoch_loss", "epoch_accuracy", "batch_loss". Use only on the
/// chief, from one thread. Throws Error (data) with the path; the writer can be used again after an
/// error.
class SummaryWriter {
 public:
  /// Creates `directory` and in it a new event file,
  /// `events.out.tfevents.SECONDS.HOST.PID.NUMBER.v2`. If the file can be created but not written
  /// (a full disk), the next flush reports the error.
  /// `suffix` replaces "v2".
  explicit SummaryWriter(const std::filesystem::path& directory, std::string_view suffix = "v2");
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  /// Flushes, and ignores errors; call flush() first to detect them.
  ~SummaryWriter();

  const std::filesystem::path& path() const { return path_; }  ///< path of the event file

  /// Marks the beginning of a run (SessionLog::START), before its first point: TensorBoard drops
  /// the points of earlier files from `step` on, which this run repeats.
  void begin_run(std::int64_t step);
  /// `wall_time`: seconds since 1970; nullopt for the current time.
  void scalar(std::string_view tag, std::int64_t step, double value,
              std::optional<double> wall_time = {});
  /// TensorBoard renders the text as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view value,
            std::optional<double> wall_time = {});

  /// Writes the distribution of the finite `values`, if there are any.
  void histogram(std::string_view tag, std::int64_t step, std::span<const float> values,
                 std::optional<double> wall_time = {});
  /// Writes an image of 1 or 3 channels, as a PNG file.
  void image(std::string_view tag, std::int64_t step, const data::ImageView& pixels,
             std::optional<double> wall_time = {});

  /// Writes the graph of the run: a tensorflow.GraphDef, as network_graph() returns. TensorBoard
  /// shows the last one of a run.
  void graph(std::int64_t step, std::string_view definition);
  /// Writes data of a TensorBoard plugin that reads them from the metadata of the tag, such as
  /// hparams.
  void plugin_data(std::string_view tag, std::string_view plugin, std::string_view content);

  /// Writes all pending events to the file. The writer also flushes every second or every 64 KiB. A
  /// failure (such as a full disk) loses the events since the last flush, except the beginning of
  /// the run; the file stays readable, and the next flush tries again.
  void flush();

  std::int64_t lost_events() const { return lost_events_; }  ///< events lost in failed flushes

 private:
  void write(std::string_view bytes);
  void add(std::string_view tag, std::string_view plugin, std::int64_t step,
           std::string_view tensor, std::optional<double> wall_time);
  void add_event(const std::string& bytes);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t good_bytes_ = 0;
  bool torn_ = false;  // the file may end with an incomplete record after good_bytes_
  std::string pending_;
  std::int64_t pending_events_ = 0;
  std::string unwritten_start_;  // pending event of the beginning of the run
  std::int64_t lost_events_ = 0;
  std::chrono::steady_clock::time_point last_flush_;
  std::set<std::string, std::less<>> known_tags_;
};

}  // namespace lockstep::inline v0::train
