#include "lockstep/interop/check_together.h"

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"

namespace lockstep::inline v0::interop {

void check_together(job::Workers& workers, std::string_view where,
                    const std::function<std::string()>& check) {
  const job::Agreement ranks(workers.group());
  const std::vector<std::string> texts =
      ranks.all_or_none(ErrorCategory::input, where, "expected the call to succeed on all ranks",
                        check, job::Agreement::LocalError::rethrown);
  job::Agreement::require_same(where, "options", texts);
}

}  // namespace lockstep::inline v0::interop
