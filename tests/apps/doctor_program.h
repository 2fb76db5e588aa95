// The report of lockstep doctor, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/apps/program.h"

namespace lockstep::inline v0::apps {

/// The object that --json prints.
class Examined {
 public:
  explicit Examined(Result result) : result_(std::move(result)) {
    const auto events = result_.events();
    if (events.size() == 1)
      report_ = events.front();
    else
      ADD_FAILURE() << "no report: " << result_.output << result_.errors;
  }

  int status() const { return result_.status; }
  const std::string& errors() const { return result_.errors; }
  const nlohmann::json& report() const { return report_; }
  /// All problems. Warnings are ignored, because the test machine may be busy.
  std::vector<nlohmann::json> problems() const { return findings("level", "problem"); }
  std::vector<nlohmann::json> findings_of(const std::string& check) const {
    return findings("check", check);
  }
  std::string level_of(const std::string& check) const {
    for (const auto& row : report_["checks"])
      if (row["check"] == check) return row["level"];
    return "missing";
  }

 private:
  std::vector<nlohmann::json> findings(const char* key, const std::string& value) const {
    std::vector<nlohmann::json> found;
    if (!report_.is_object()) return found;
    for (const auto& finding : report_["findings"])
      if (finding[key] == value) found.push_back(finding);
    return found;
  }

  Result result_;
  nlohmann::json report_;
};

/// Expects exactly one problem, found by `check`, and status 1. Returns "WHAT -> REMEDY".
inline std::string only_problem(const Examined& examined, const std::string& check) {
  EXPECT_EQ(examined.status(), 1);
  const auto problems = examined.problems();
  EXPECT_EQ(problems.size(), 1U) << examined.report();
  if (problems.size() != 1) return "";
  EXPECT_EQ(problems.front()["check"], check);
  return std::string(problems.front()["what"]) + " -> " + std::string(problems.front()["remedy"]);
}

}  // namespace lockstep::inline v0::apps
