// What processes of a job say of themselves, and the table of all.
#include "lockstep/job/launch/admission.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

/// What was read must be written and read again unchanged.
template <typename Read, typename Same>
void read_again(const std::string& text, Read read, Same same) {
  try {
    const auto value = read(text);
    LOCKSTEP_CHECK(same(read(to_text(value)), value));
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::communication) throw;
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  const std::string text(text_of(bytes));
  read_again(text, job::parse_join_request, std::equal_to<>());
  read_again(text, job::parse_job_table, [](const job::JobTable& a, const job::JobTable& b) {
    return a.job == b.job && a.members == b.members;
  });
}

}  // namespace lockstep::inline v0::fuzz
