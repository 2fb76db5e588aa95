#include "lockstep/job/agreement.h"

#include <fmt/format.h>

#include <exception>
#include <span>

#include "lockstep/base/system/host.h"
#include "lockstep/job/session.h"

namespace lockstep::job {
namespace {

// The first byte of what a rank sends of its work.
constexpr char kDone = '+';
constexpr char kFailed = '-';

}  // namespace

Agreement::Agreement(const Session& session)
    : size_(session.size()),
      rank_(session.rank()),
      gather_([&session](const std::string& mine) { return session.all_gather(mine); }) {}

Agreement::Agreement(const allreduce::Communicator& group)
    : size_(group.size()), rank_(group.rank()), gather_([group](const std::string& mine) {
        std::vector<std::string> texts;
        for (const std::vector<std::byte>& bytes : group.all_gather(std::as_bytes(std::span(mine))))
          texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return texts;
      }) {}

std::vector<std::string> Agreement::all_or_none(ErrorCategory category, std::string_view where,
                                                std::string_view expected,
                                                const std::function<std::string()>& work,
                                                Own own) const {
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
  if (thrown && own == Own::rethrown) std::rethrow_exception(thrown);
  for (std::string& result : results) {
    const bool failed = result.front() == kFailed;
    result.erase(0, 1);
    if (failed) throw Error(category, where, expected, result);
  }
  return results;
}

void Agreement::require_same(std::string_view where, std::string_view what,
                             const std::string& mine) const {
  require_same(where, what, gather(mine));
}

void Agreement::require_same(std::string_view where, std::string_view what,
                             const std::vector<std::string>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw Error(ErrorCategory::input, where,
                  fmt::format("expected the same {} on all ranks", what),
                  fmt::format("rank 0 has {}; rank {} has {}", all.front(), rank, all[rank]));
}

}  // namespace lockstep::job
