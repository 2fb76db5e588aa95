// Tables in several files, in gzip files and in other encodings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/data/open_data.h"
#include "lockstep/data/record/compression.h"
#include "tests/data/source/csv_fixture.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  std::string out;
  Deflater deflater(Compression::gzip);
  deflater.add(text, out);
  deflater.finish(out);
  return out;
}

class CsvFiles : public CsvFixture {
 protected:
  void write(const std::string& name, const std::string& text) const {
    write_bytes(directory_ / name, text);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  CsvSource open_all(const std::string& pattern, const std::string& options = "") const {
    CsvSpec spec = CsvSpec::parse(path(pattern) + (options.empty() ? "" : ":" + options), "test");
    if (!spec.options.scale) spec.options.scale = ColumnScale::none;
    return CsvSource(spec.file, spec.options);
  }
  std::string error_of_all(const std::string& pattern, const std::string& options = "") const {
    return data_error_of([&] { open_all(pattern, options); });
  }
  static std::vector<float> first_features(const CsvSource& table) {
    std::vector<float> values;
    for (std::int64_t id = 0; id < table.size(); ++id)
      values.push_back(read(table, id).features()[0]);
    return values;
  }
};

TEST_F(CsvFiles, ReadsSeveralFilesAsOne) {
  write("part-1.csv", "x,kind\n1,a\n2,b");  // without a line end
  write("part-2.csv",
        "\xef\xbb\xbf"
        "x,kind\r\n3,a\r\n");
  write("part-10.csv", "x,kind\n\n4,b\n");
  const CsvSource table = open_all("part-*.csv");
  EXPECT_THAT(first_features(table), ElementsAre(1, 2, 4, 3)) << "in the order of the names";
  EXPECT_THAT(table.info().class_names, ElementsAre("a", "b"));
  EXPECT_EQ(table.info().table->columns, (std::vector<std::string>{"x", "kind"}));
}

TEST_F(CsvFiles, ReadsFilesWithoutHeaders) {
  write("a.csv", "1.5,0\n2.5,1\n");
  write("b.csv", "3.5,0\n");
  EXPECT_THAT(first_features(open_all("{a,b}.csv")), ElementsAre(1.5, 2.5, 3.5));
}

TEST_F(CsvFiles, ReadsGzipFiles) {
  write("a.csv.gz", gzip("x,kind\n1,a\n2,b\n"));
  write("b.csv", "x,kind\n3,a\n");
  EXPECT_THAT(first_features(open_all("a.csv.gz")), ElementsAre(1, 2));
  EXPECT_THAT(first_features(open_all("*")), ElementsAre(1, 2, 3));
  EXPECT_THAT(open_data("csv:" + path("*.csv.gz")).description(), HasSubstr("*.csv.gz"));
}

TEST_F(CsvFiles, NamesTheFileAndColumnOfAnotherHeader) {
  write("a.csv", "x,y,kind\n1,1,a\n2,2,b\n");
  write("b.csv", "x,z,kind\n1,1,a\n");
  EXPECT_EQ(error_of_all("?.csv"),
            "[" + path("b.csv") + "] expected y as column 2, as in " + path("a.csv") + ", got z");
  write("b.csv", "x,kind\n1,a\n");
  EXPECT_EQ(error_of_all("?.csv"),
            "[" + path("b.csv") + "] expected the 3 columns of " + path("a.csv") + ", got 2");
}

TEST_F(CsvFiles, NamesTheFileAndLineOfAField) {
  write("a.csv", "x,kind\n1,a\n2,b\n");
  write("b.csv", "x,kind\n1,a\n\"3\",b\n4,\n");
  EXPECT_THAT(error_of_all("?.csv"), HasSubstr("[" + path("b.csv") + ": line 4, column 2]"));
  EXPECT_THAT(error_of_all("?.csv"), HasSubstr("(first in line 4 of " + path("b.csv") + ")"));
}

TEST_F(CsvFiles, RefusesAPatternWithoutFiles) {
  EXPECT_EQ(error_of_all("part-*.csv"),
            "[" + path("part-*.csv") + "] expected files that match this pattern; there are none");
}

TEST_F(CsvFiles, ReadsLatin1) {
  write("a.csv", "size,kind\n1,k\xfcrbis\n2,\xe4pfel\n");
  EXPECT_EQ(error_of_all("a.csv"),
            "[" + path("a.csv") +
                ": line 2] expected a table in UTF-8 (csv:FILE:encoding=latin1 reads one in "
                "Latin-1; iconv -f LATIN1 -t UTF-8 converts it), got the byte 0xfc");
  EXPECT_THAT(open_all("a.csv", "encoding=latin1").info().class_names,
              ElementsAre("k\xc3\xbcrbis", "\xc3\xa4pfel"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
