#include "lockstep/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

TEST(Dataset, MustBeBatchedAndNotEmptyToStream) {
  const Dataset unbatched = Dataset::from_source(std::make_shared<CountingSource>(10));
  EXPECT_EQ(input_error_of([&] { unbatched.stream({}); }),
            "[stream] expected a data set grouped into batches; call batch() first");
  EXPECT_EQ(unbatched.steps_per_epoch(), 0);
  EXPECT_EQ(data_error_of([] { counting(0, 5).stream({}); }),
            "[counting] expected at least one record; the data set is empty");
  EXPECT_EQ(input_error_of([&] { unbatched.batch(0); }),
            "[batch] expected a global batch of at least 1 sample, got 0");
}

TEST(Dataset, IsAValueThatStepsDoNotChange) {
  const Dataset plain = counting(10, 4);
  const Dataset shuffled = plain.shuffle();
  EXPECT_THAT(ids_of(plain, epochs(plain, 1))[0], ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(shuffled.steps_per_epoch(), 3);
  EXPECT_EQ(shuffled.batch(5).steps_per_epoch(), 2);
  EXPECT_EQ(shuffled.global_batch(), 4);
  EXPECT_EQ(plain.description(), "counting");
}

}  // namespace
}  // namespace lockstep::data
