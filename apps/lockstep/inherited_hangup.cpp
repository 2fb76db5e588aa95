#include "apps/lockstep/inherited_hangup.h"

#include <csignal>

namespace lockstep::apps {
namespace {

struct sigaction inherited;
bool is_known = false;

void note_hangup() { is_known = ::sigaction(SIGHUP, nullptr, &inherited) == 0; }

// An executable's functions here run before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*note_first)() = note_hangup;

}  // namespace

void restore_inherited_hangup() {
  if (is_known) ::sigaction(SIGHUP, &inherited, nullptr);
}

}  // namespace lockstep::apps
