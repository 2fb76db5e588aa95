// Logs of trainings for the tests of reports.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <string>

#include "apps/lockstep/report/run_log.h"
#include "lockstep/base/error.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps::report {

/// An event `start` at time 100, one second after the start of the program.
inline std::string start_event(const std::string& more = "") {
  return R"({"event":"start","world_size":2,"nodes":2,"global_batch":64,"model":"mlp",)"
         R"("data":"d","parameters":10,"first_step":0,"last_step":40,"learning_rate":0.1,)"
         R"("start_seconds":1.0,"devices":[{"replica":0,"rank":0,"host":"a","device":"cpu:0",)"
         R"("cores":2},{"replica":1,"rank":1,"host":"<b>","device":"cpu:0","cores":2}],)" +
         more + R"("time":100.0})" + "\n";
}

/// An event `step` at time 100 + `step`.
inline std::string step_event(int step, double loss, const std::string& more = "") {
  return fmt::format(R"({{"event":"step","step":{},"epoch":0,"loss":{},{}"time":{}}})"
                     "\n",
                     step, loss, more, 100 + step);
}

inline std::string epoch_event(int step, double accuracy, const std::string& more = "") {
  return fmt::format(
      R"({{"event":"epoch","epoch":0,"step":{},"complete":true,"samples_per_second":10,)"
      R"("validation_accuracy":{},{}"time":{}}})"
      "\n",
      step, accuracy, more, 100 + step);
}

inline std::string end_event(int steps, const std::string& more = "") {
  return fmt::format(
      R"({{"event":"end","steps":{},"parameter_hash":"00ff","healthy":true,{}"time":{}}})"
      "\n",
      steps, more, 100 + steps);
}

/// The log `text`, read from a file.
inline RunLog log_of(const std::string& text, const std::string& name = "run") {
  const data::TemporaryDirectory directory;
  data::write_bytes(directory / (name + ".jsonl"), text);
  return read_runs(directory / (name + ".jsonl")).front();
}

/// The text of the Error that `call` throws.
inline std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep::inline v0::apps::report
