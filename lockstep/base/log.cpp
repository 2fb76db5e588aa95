#include "lockstep/base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "lockstep/base/system/terminal.h"

namespace lockstep {

std::shared_ptr<Logger> make_logger(const LogOptions& options) {
  auto logger =
      std::make_shared<Logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const std::string rank = options.ranks > 1 ? fmt::format("[rank {}] ", options.rank) : "";
  logger->set_pattern(fmt::format("{}lockstep: {}%v", message_start(), rank));
  logger->set_level(options.quiet     ? spdlog::level::warn
                    : options.verbose ? spdlog::level::debug
                                      : spdlog::level::info);
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<Logger> make_silent_logger() {
  return std::make_shared<Logger>("silent", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace lockstep
