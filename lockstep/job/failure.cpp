#include "lockstep/job/failure.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep::inline v0::job {
Failure describe_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.what(), exit_status(error.category()),
            error.category() == ErrorCategory::communication};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return {Error(ErrorCategory::data, path.empty() ? "files" : path,
                  "expected a file or directory that this user can use",
                  fmt::format("got {}", error.code().message()))
                .what(),
            exit_status(ErrorCategory::data), false};
  } catch (const std::system_error& error) {
    return {Error(ErrorCategory::device, "system",
                  "expected a system resource within the limits of this host (ulimit -a)",
                  fmt::format("got {}", error.what()))
                .what(),
            exit_status(ErrorCategory::device), false};
  } catch (const std::bad_alloc&) {
    return {
        "[memory] expected more memory than this host has; reduce the batch size or the number of "
        "replicas per host",
        exit_status(ErrorCategory::device), false};
  } catch (const nlohmann::json::exception& error) {
    // Readers should name the key and the value themselves; this one does not.
    return {fmt::format("[json] expected values of other kinds in a JSON text; this is a bug of "
                        "its reader (json.exception.{})",
                        error.id),
            1, false};
  } catch (const std::exception& error) {
    return {printable(error.what()), 1, false};
  } catch (...) {
    return {
        "[program] expected exceptions of type std::exception; the calling program threw another "
        "type, which is a bug",
        1, false};
  }
}

}  // namespace lockstep::inline v0::job
