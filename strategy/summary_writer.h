// Curves and texts for TensorBoard: an event file, which is a TFRecord file of tensorflow.Event messages that grows
// while training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::strategy {

/// Appends to one event file. One writer per run and kind of data, as Keras does: DIR/train and DIR/validation, with
/// tags such as "epoch_loss", "epoch_accuracy", "batch_loss"; made by the chief alone. One thread. All errors are Error
/// (data) with the path; after one the writer can be used as before.
class SummaryWriter {
 public:
  /// Makes `directory` and in it a new event file, `events.out.tfevents.SECONDS.HOST.PID.NUMBER.v2`. A file that can be
  /// made but not written yet, on a full disk, is an error of the next flush.
  explicit SummaryWriter(const std::filesystem::path& directory);
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  /// Flushes; a failure to do so is not reported here: call flush() to hear of it.
  ~SummaryWriter();

  const std::filesystem::path& path() const { return path_; }  ///< of the file of events

  /// `wall_time` is in seconds since 1970; empty for now.
  void scalar(std::string_view tag, std::int64_t step, double value, std::optional<double> wall_time = {});
  /// Shown as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view value, std::optional<double> wall_time = {});

  /// Hands everything to the file system, where TensorBoard sees it. Also done on the way, every second or every 64
  /// KiB. A failure, for instance for a full disk, loses the events since the last flush; the file stays readable, and
  /// the next flush tries again.
  void flush();

  std::int64_t lost_events() const { return lost_events_; }  ///< scalars and texts, in failed flushes

 private:
  void write(std::string_view bytes);
  void add(std::string_view tag, std::string_view plugin, std::int64_t step, std::string_view tensor,
           std::optional<double> wall_time);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t good_bytes_ = 0;
  bool torn_ = false;  // the file may end in a part of a record, behind good_bytes_
  std::string pending_;
  std::int64_t pending_events_ = 0;
  std::int64_t lost_events_ = 0;
  std::chrono::steady_clock::time_point last_flush_;
  std::set<std::string, std::less<>> known_tags_;
};

}  // namespace lockstep::strategy
