#include "lockstep/job/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::job {
namespace {

// The first byte of a result that a rank sends.
constexpr char kDone = '+';
constexpr char kFailed = '-';

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// A value, and the ranks that have it.
struct Holders {
  std::string_view value;
  std::vector<std::size_t> ranks;

  /// "ranks 1, 3 have VALUE"
  std::string text() const {
    constexpr std::size_t kListed = 8;
    std::string list;
    for (std::size_t i = 0; i < std::min(ranks.size(), kListed); ++i)
      list += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (ranks.size() > kListed) list += fmt::format(" and {} more", ranks.size() - kListed);
    return ranks.size() == 1 ? fmt::format("rank {} has {}", list, value)
                             : fmt::format("ranks {} have {}", list, value);
  }
};

/// "rank 0 has A; ranks 1, 3 have B; rank 2 has C". Only rank 0 is listed for A.
std::string list_values(const std::vector<std::string_view>& by_rank) {
  std::vector<Holders> all;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto found = std::ranges::find(all, by_rank[rank], &Holders::value);
    if (found == all.end())
      all.push_back({by_rank[rank], {rank}});
    else if (found != all.begin())
      found->ranks.push_back(rank);
  }
  std::string text;
  for (const Holders& holders : all) text += (text.empty() ? "" : "; ") + holders.text();
  return text;
}

}  // namespace

Agreement::Agreement(const allreduce::Communicator& group)
    : size_(group.size()), rank_(group.rank()), gather_([group](const std::string& mine) {
        std::vector<std::string> texts;
        for (const std::vector<std::byte>& bytes : group.all_gather(std::as_bytes(std::span(mine))))
          texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return texts;
      }) {}

void Agreement::wait_for_all() const {
  try {
    gather({});
  } catch (const std::exception&) {  // a rank is lost: the error about the values is still right
  }
}

std::vector<std::string> Agreement::all_or_none(ErrorCategory category, std::string_view where,
                                                std::string_view expected,
                                                const std::function<std::string()>& work,
                                                LocalError local) const {
  std::string mine;
  std::exception_ptr thrown;
  try {
    mine = kDone + work();
  } catch (const std::exception& error) {
    if (size_ == 1) throw;
    thrown = std::current_exception();
    mine = fmt::format("{}rank {} on {} failed: {}", kFailed, rank_, host_name(), error.what());
  }
  std::vector<std::string> results = gather(mine);
  const auto is_failure = [](const std::string& result) { return result.front() == kFailed; };
  if (std::ranges::any_of(results, is_failure)) wait_for_all();
  if (thrown && local == LocalError::rethrown) std::rethrow_exception(thrown);
  for (std::string& result : results) {
    const bool failed = is_failure(result);
    result.erase(0, 1);
    if (failed) throw Error(category, where, expected, result);
  }
  return results;
}

void Agreement::require_same(std::string_view where, std::string_view what,
                             const std::string& mine) const {
  const std::vector<std::string> all = gather(mine);
  if (std::ranges::count(all, all.front()) < std::ssize(all)) wait_for_all();
  require_same(where, what, all);
}

void Agreement::require_same_lines(std::string_view where, const std::string& mine) const {
  const std::vector<std::string> all = gather(mine);
  std::vector<std::vector<std::string_view>> lines;
  std::size_t most = 0;
  for (const std::string& text : all)
    most = std::max(most, lines.emplace_back(lines_of(text)).size());
  for (std::size_t i = 0; i < most; ++i) {
    std::string_view what = "options";
    std::vector<std::string_view> values;
    for (const std::vector<std::string_view>& rank_lines : lines) {
      const std::string_view line = i < rank_lines.size() ? rank_lines[i] : "none";
      const std::size_t colon = line.find(": ");
      if (colon != std::string_view::npos) what = line.substr(0, colon);
      values.push_back(colon == std::string_view::npos ? line : line.substr(colon + 2));
    }
    if (std::ranges::all_of(values, [&](std::string_view value) { return value == values[0]; }))
      continue;
    wait_for_all();
    throw Error(ErrorCategory::input, where, fmt::format("expected the same {} on all ranks", what),
                list_values(values));
  }
}

void Agreement::require_same(std::string_view where, std::string_view what,
                             const std::vector<std::string>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw Error(ErrorCategory::input, where,
                  fmt::format("expected the same {} on all ranks", what),
                  fmt::format("rank 0 has {}; rank {} has {}", all.front(), rank, all[rank]));
}

}  // namespace lockstep::inline v0::job
