// Option specs. A spec that was parsed must be written and parsed again unchanged.
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/strategy/trainer_options.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/plateau.h"
#include "lockstep/train/options/fit_options.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

template <typename Action>
void try_spec(Action action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::input) throw;
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  const std::string text(text_of(bytes));
  try_spec([&] { split_specs("fuzz", text); });
  try_spec([&] { Spec::parse("fuzz", text).finish(); });
  // Text with braces would be expanded as a file pattern.
  if (text.find_first_of("*?[{~") == std::string::npos)
    try_spec([&] { data::CsvSpec::parse("/dev/null:" + text, "fuzz"); });
  try_spec([&] { data::ImageRecipe::parse(text); });
  try_spec([&] { train::parse_trace(text); });
  try_spec([&] { train::parse_plateau(text); });
  try_spec([&] {
    const auto metric = train::parse_early_stopping(text).metric;
    LOCKSTEP_CHECK(train::parse_keep_best(metric.text()) == metric);
  });
  try_spec([&] {
    const std::string loss = model::to_string(model::parse_loss(text));
    LOCKSTEP_CHECK(model::to_string(model::parse_loss(loss)) == loss);
  });
  try_spec([&] {
    const strategy::ParameterGroup group = strategy::parse_group(text);
    const strategy::ParameterGroup again = strategy::parse_group(to_string(group));
    LOCKSTEP_CHECK(again.pattern == group.pattern);
    LOCKSTEP_CHECK(again.learning_rate == group.learning_rate);
    LOCKSTEP_CHECK(again.weight_decay == group.weight_decay);
  });
}

}  // namespace lockstep::inline v0::fuzz
