#include "lockstep/model/updater.h"

#include "lockstep/base/error.h"

namespace lockstep::model {

std::span<float> Updater::slot(std::string_view name) {
  for (std::size_t i = 0; i < slot_names_.size(); ++i)
    if (slot_names_[i] == name) return slot(i);
  throw Error(ErrorCategory::checkpoint, to_string(options_),
              fmt::format("expected one of the slots {}", fmt::join(slot_names_, ", ")),
              fmt::format("got \"{}\"", name));
}

}  // namespace lockstep::model
