#include "lockstep/data/order/record_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

constexpr const char* kWhere = "split";

/// The fraction of `count` records that follow `before` others, rounded so that all groups together
/// have the fraction, too.
std::int64_t share(double fraction, std::int64_t before, std::int64_t count) {
  const auto rounded = [&](std::int64_t records) {
    return std::llround(fraction * static_cast<double>(records));
  };
  return rounded(before + count) - rounded(before);
}

std::string_view name_of(SplitPart part) {
  return part == SplitPart::training     ? "training"
         : part == SplitPart::validation ? "validation"
                                         : "test";
}

}  // namespace

void RecordSplit::check() const {
  const auto is_fraction = [](double fraction) { return fraction >= 0 && fraction < 1; };
  if (is_fraction(validation) && is_fraction(test) && validation + test < 1) return;
  throw Error(ErrorCategory::input, kWhere,
              "expected --validation-split and --test-split, and their sum, to be fractions below "
              "1, such as 0.2",
              fmt::format("got {} and {}", validation, test));
}

std::string RecordSplit::preparation(SplitPart part) const {
  std::string fractions;
  for (const auto& [name, fraction] : {std::pair("validation", validation), {"test", test}})
    if (fraction > 0)
      fractions += fmt::format("{}{} {}", fractions.empty() ? "" : ", ", name, fraction);
  return fmt::format(", the {} part of a split ({})", name_of(part), fractions);
}

std::int64_t SplitInfo::total() const {
  return std::accumulate(records.begin(), records.end(), std::int64_t{0});
}

std::string SplitInfo::text() const {
  const auto& [training, validation, test] = records;
  std::string text = fmt::format("{} training", training);
  if (validation > 0) text += fmt::format(", {} validation", validation);
  if (test > 0) text += fmt::format(", {} test", test);
  text += " records";
  return label.empty() ? text : fmt::format("{}, stratified by {}", text, label);
}

std::vector<SplitPart> split_records(const RecordSplit& split,
                                     std::span<const std::int32_t> groups) {
  struct Entry {
    std::int32_t group;
    std::uint32_t draw;
    std::int64_t record;
    auto operator<=>(const Entry&) const = default;
  };
  const Philox random(random_key(split.seed, "split"));
  std::vector<Entry> entries(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i)
    entries[i] = {groups[i], random.block(0, i)[0], static_cast<std::int64_t>(i)};
  std::ranges::sort(entries);
  std::vector<SplitPart> parts(groups.size(), SplitPart::training);
  std::int64_t before = 0;  // records of the groups that were divided
  for (auto group = entries.begin(); group != entries.end();) {
    const auto end = std::find_if(group, entries.end(),
                                  [&](const Entry& entry) { return entry.group != group->group; });
    const std::int64_t count = end - group;
    if (count > 1) {
      std::int64_t test = share(split.test, before, count);
      std::int64_t validation = share(split.validation, before, count);
      while (test + validation >= count) --(test > validation ? test : validation);
      before += count;
      for (std::int64_t i = 0; i < test + validation; ++i)
        parts[static_cast<std::size_t>(group[i].record)] =
            i < test ? SplitPart::test : SplitPart::validation;
    }
    group = end;
  }
  return parts;
}

SplitInfo count_parts(const RecordSplit& split, std::span<const SplitPart> parts,
                      const std::string& label, const std::string& where) {
  SplitInfo info = {.split = split, .records = {}, .label = label};
  for (const SplitPart part : parts) ++info.records[static_cast<std::size_t>(part)];
  for (const auto& [part, fraction] :
       {std::pair(SplitPart::validation, split.validation), {SplitPart::test, split.test}})
    if (fraction > 0 && info.records[static_cast<std::size_t>(part)] == 0)
      throw Error(ErrorCategory::data, where,
                  fmt::format("expected at least one {0} record for --{0}-split {1}", name_of(part),
                              fraction),
                  fmt::format("got none of {}", parts.size()));
  return info;
}

}  // namespace lockstep::inline v0::data
