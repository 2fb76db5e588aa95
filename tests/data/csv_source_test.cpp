#include "data/source/csv_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

class CsvTest : public ::testing::Test {
 protected:
  CsvSource open(const std::string& text) const {
    write_bytes(path_, text);
    return CsvSource(path_);
  }
  std::string error(const std::string& text) const {
    return data_error_of([&] { open(text); });
  }
  std::string at(const std::string& place) const { return "[" + path_.string() + ": " + place + "] "; }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "table.csv";
};

TEST_F(CsvTest, ReadsRowsWithAndWithoutHeader) {
  for (const char* header : {"", "120,4,setosa,versicolor,virginica\n", "a,b,class\n", "\"x\",\"y\",\"z\"\r\n"}) {
    const CsvSource source = open(std::string(header) + "6.4,-2.8,2\n+1e-3, 3 ,0\r\n\n7,8,1");
    EXPECT_EQ(source.size(), 3) << header;
    EXPECT_EQ(source.spec(), (SampleSpec{{2}, 3, 0}));
    EXPECT_THAT(read(source, 0).features, ElementsAre(6.4f, -2.8f));
    EXPECT_EQ(read(source, 0).label, 2);
    EXPECT_THAT(read(source, 1).features, ElementsAre(1e-3f, 3.0f));
    EXPECT_THAT(read(source, 2).features, ElementsAre(7.0f, 8.0f));
    EXPECT_EQ(read(source, 2).label, 1);
  }
}

TEST_F(CsvTest, NamesFileLineAndColumn) {
  EXPECT_EQ(error("1,2,0\n1,x,0\n"), at("line 2, column 2") + "needed a finite number; \"x\" was given");
  EXPECT_EQ(error("a,b,c\n1,2,0\n,2,0\n"), at("line 3, column 1") + "needed a finite number; \"\" was given");
  EXPECT_EQ(error("1,2,0\nnan,2,0\n"), at("line 2, column 1") + "needed a finite number; \"nan\" was given");
  EXPECT_EQ(error("1,2,0\n1e99,2,0\n"), at("line 2, column 1") + "needed a finite number; \"1e99\" was given");
  EXPECT_EQ(error("1,2,0\n1,2,setosa\n"),
            at("line 2, column 3") + "needed a class number (an integer from 0); \"setosa\" was given");
  EXPECT_EQ(error("1,2,0\n1,2,-1\n"),
            at("line 2, column 3") + "needed a class number (an integer from 0); \"-1\" was given");
  EXPECT_EQ(error("1,2,0.5\n"),
            at("line 1, column 3") + "needed a class number (an integer from 0); \"0.5\" was given");
  EXPECT_EQ(error("1,2,0\n1,2\n"), at("line 2, column 2") + "needed 3 columns, as in the first row; there are 2");
  EXPECT_EQ(error("1,2,0\n1,2,3,0\n"), at("line 2, column 3") + "needed 3 columns, as in the first row; there are 4");
  EXPECT_EQ(error("1\n2\n"), at("line 1, column 1") + "needed a feature and a label; there is one column");
}

TEST_F(CsvTest, NeedsRows) {
  EXPECT_EQ(error(""), "[" + path_.string() + "] needed rows of numbers; the file has none");
  EXPECT_EQ(error("a,b,c\n"), "[" + path_.string() + "] needed rows of numbers; the file has none");
  EXPECT_EQ(data_error_of([] { CsvSource source("nowhere.csv"); }),
            "[nowhere.csv] needed a file that can be read; No such file or directory");
}

}  // namespace
}  // namespace lockstep::data
