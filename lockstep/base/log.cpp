#include "lockstep/base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/terminal.h"

namespace lockstep::inline v0 {
namespace {

/// "warning: " or "error: " by the level, the rank, and the message on one line.
class OneLine final : public spdlog::custom_flag_formatter {
 public:
  explicit OneLine(std::string rank) : rank_(std::move(rank)) {}

  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& text) override {
    const std::string_view mark = message.level == spdlog::level::warn  ? "warning: "
                                  : message.level == spdlog::level::err ? "error: "
                                                                        : "";
    const std::string_view payload(message.payload.data(), message.payload.size());
    const std::string line = fmt::format("{}{}{}", mark, rank_, printable(payload));
    text.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLine>(rank_);
  }

 private:
  std::string rank_;
};

}  // namespace

std::shared_ptr<Logger> make_logger(const LogOptions& options) {
  auto logger =
      std::make_shared<Logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::string rank = options.ranks > 1 ? fmt::format("[rank {}] ", options.rank) : "";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLine>('*', std::move(rank))
      .set_pattern(fmt::format("{}lockstep: %*", message_start()));
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
