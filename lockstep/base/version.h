/* The version of Lockstep, the only place: CMake reads it here. */
#pragma once

#define LOCKSTEP_VERSION_MAJOR 0
#define LOCKSTEP_VERSION_MINOR 1
#define LOCKSTEP_VERSION_PATCH 0

#define LOCKSTEP_TEXT_OF(number) #number
#define LOCKSTEP_JOINED(major, minor, patch) \
  LOCKSTEP_TEXT_OF(major) "." LOCKSTEP_TEXT_OF(minor) "." LOCKSTEP_TEXT_OF(patch)
/* The three, as text: "1.2.3". */
#define LOCKSTEP_VERSION \
  LOCKSTEP_JOINED(LOCKSTEP_VERSION_MAJOR, LOCKSTEP_VERSION_MINOR, LOCKSTEP_VERSION_PATCH)
