#include "lockstep/base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/terminal.h"

namespace lockstep::inline v0 {
namespace {

constexpr std::string_view kProgram = "lockstep: ";

/// "warning: " or "error: " by the level, the rank, and the message on one line, which a terminal
/// shows wrapped between words.
class OneLine final : public spdlog::custom_flag_formatter {
 public:
  OneLine(std::string rank, bool is_on_terminal)
      : rank_(std::move(rank)), is_on_terminal_(is_on_terminal) {}

  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& text) override {
    const std::string_view mark = message.level == spdlog::level::warn  ? "warning: "
                                  : message.level == spdlog::level::err ? "error: "
                                                                        : "";
    const std::string_view payload(message.payload.data(), message.payload.size());
    std::string line = fmt::format("{}{}{}", mark, rank_, printable(payload));
    // The last column stays free: some terminals wrap a line that fills it.
    if (is_on_terminal_)
      line = wrap_words(line, kProgram.size(),
                        static_cast<std::size_t>(terminal_columns(STDERR_FILENO) - 1));
    text.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLine>(rank_, is_on_terminal_);
  }

 private:
  std::string rank_;
  bool is_on_terminal_;
};

}  // namespace

std::shared_ptr<Logger> make_logger(const LogOptions& options) {
  auto logger =
      std::make_shared<Logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::string rank = options.ranks > 1 ? fmt::format("[rank {}] ", options.rank) : "";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  const std::string_view start = message_start();
  formatter->add_flag<OneLine>('*', std::move(rank), !start.empty())
      .set_pattern(fmt::format("{}{}%*", start, kProgram));
  logger->set_formatter(std::move(formatter));
  logger->set_level(options.quiet     ? spdlog::level::warn
                    : options.verbose ? spdlog::level::debug
                                      : spdlog::level::info);
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<Logger> make_silent_logger() {
  return std::make_shared<Logger>("silent", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace lockstep::inline v0
