// The main program of tests that need a GPU of this machine: without one, all are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "lockstep/device/gpu.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (lockstep::device::gpu_is_available()) return RUN_ALL_TESTS();
  std::printf("[  SKIPPED ] all tests: %s\n[  PASSED  ] 0 tests.\n",
              lockstep::device::gpu_unavailable_reason().c_str());
  return 0;
}
