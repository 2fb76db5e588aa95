// The fixture of tests of saved trainings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {

/// A directory for checkpoints and data.
class Saved : public ::testing::Test {
 protected:
  std::string directory(const std::string& name = "run") const { return scratch_.path() / name; }
  std::string train(const std::string& name = "run") const {
    return kTrain + "--epochs 3 --save-every 8 --checkpoint-dir " + directory(name) + " ";
  }
  checkpoint::ScratchDirectory scratch_;
};

}  // namespace lockstep::inline v0::apps
