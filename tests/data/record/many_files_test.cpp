// Data sets of more files than a process may have open.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

std::int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

class ManyFiles : public ::testing::Test {
 protected:
  /// File i has i % 3 records of label i % 10. They are not synced, which is slow.
  void write_files(int count) {
    for (int i = 0; i < count; ++i) {
      std::string bytes;
      for (int record = 0; record < i % 3; ++record)
        append_record(bytes, image_record(i % 10, 4, 1));
      paths_.push_back(directory_ / (std::to_string(100'000 + i) + ".tfrecord"));
      write_bytes(paths_.back(), bytes);
    }
  }
  std::vector<std::int32_t> labels() const {
    std::vector<std::int32_t> labels;
    for (std::size_t i = 0; i < paths_.size(); ++i)
      labels.insert(labels.end(), i % 3, static_cast<std::int32_t>(i % 10));
    return labels;
  }
  std::unique_ptr<TFRecordSource> open() const {
    return std::make_unique<TFRecordSource>(
        paths_, TFRecordOptions{.input_shape = {2, 2, 1}, .classes = 10}, "many");
  }

  const TemporaryDirectory directory_;
  std::vector<std::filesystem::path> paths_;
};

TEST_F(ManyFiles, AreReadInAnyOrderWithFewOpen) {
  write_files(600);
  const std::int64_t before = open_descriptors();
  const auto source = open();
  const auto expected = labels();
  ASSERT_EQ(source->size(), std::ssize(expected));
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const std::int64_t id = i * 7919 % source->size();
    ASSERT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]) << id;
  }
  for (std::int64_t id = 0; id < source->size(); ++id)
    ASSERT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]) << id;
  EXPECT_LE(open_descriptors() - before, static_cast<std::int64_t>(RecentFiles::kMaxOpen));
}

TEST_F(ManyFiles, AreReadBySeveralThreads) {
  write_files(300);
  const auto source = open();
  const auto expected = labels();
  std::vector<std::jthread> threads;
  for (std::int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::int64_t i = 0; i < source->size(); ++i) {
        const std::int64_t id = (i * 7919 + thread * 31) % source->size();
        EXPECT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]);
      }
    });
  }
}

TEST_F(ManyFiles, AFileThatChangedIsAnError) {
  write_files(300);
  const auto source = open();
  read(*source, 0);
  for (int i = 2; i < 300; ++i) std::filesystem::remove(paths_[static_cast<std::size_t>(i)]);
  EXPECT_THAT(data_error_of([&] { read(*source, source->size() - 1); }),
              ::testing::HasSubstr("expected a file that can be read; No such file or directory"));
  std::string longer;
  append_record(longer, image_record(1, 5, 1));
  write_bytes(paths_[299], longer);  // the last that has records
  EXPECT_EQ(data_error_of([&] { read(*source, source->size() - 1); }),
            "[" + paths_[299].string() +
                "] expected the file as it was when the data set was opened; the file has changed; "
                "restart the run");
}

/// The members of an exchange are threads. Each has its own copy of the data set, in which only the
/// files that it must read are intact. The last member is on a separate node.
class SharedFiles : public ::testing::Test {
 protected:
  static constexpr int kMembers = 4;
  static constexpr int kFiles = 7;

  static int node_of(int member) { return member == kMembers - 1 ? 1 : 0; }

  std::filesystem::path path(int member, int file) const {
    return directory_ / fmt::format("{}", member) / fmt::format("{}.tfrecord", file);
  }

  /// File i has i + 1 records of label i + 1.
  void write_files() {
    for (int member = 0; member < kMembers; ++member) {
      std::filesystem::create_directory(directory_ / fmt::format("{}", member));
      for (int i = 0; i < kFiles; ++i) {
        std::string bytes;
        for (int record = 0; record <= i; ++record)
          append_record(bytes, image_record(i + 1, 4, static_cast<unsigned char>(i)));
        if (i % 2 == 1) {
          Deflater deflater(Compression::gzip);
          std::string packed;
          deflater.add(bytes, packed);
          deflater.finish(packed);
          bytes = packed;
        }
        write_bytes(path(member, i),
                    i % kMembers == member ? bytes : std::string(bytes.size(), '?'));
      }
    }
  }

  IndexExchange exchange_of(int member) {
    return {kMembers, member,
            [this, member](const std::string& mine) {
              parts_[static_cast<std::size_t>(member)] = mine;
              barrier_.arrive_and_wait();
              const std::vector<std::string> all = parts_;
              barrier_.arrive_and_wait();
              return all;
            },
            node_of(member)};
  }

  /// The result of open_one(member) on each member: a data set, or the text of an Error.
  template <typename OpenOne>
  void open_each(OpenOne open_one) {
    data_.assign(kMembers, std::nullopt);
    errors_.assign(kMembers, "");
    std::vector<std::jthread> threads;
    for (int member = 0; member < kMembers; ++member) {
      threads.emplace_back([this, member, open_one] {
        const auto at = static_cast<std::size_t>(member);
        try {
          data_[at] = open_one(member);
        } catch (const Error& error) {
          errors_[at] = error.what();
        }
      });
    }
  }
  void open(bool skip_damage = false) {
    open_each([this, skip_damage](int member) {
      std::vector<std::filesystem::path> paths;
      for (int i = 0; i < kFiles; ++i) paths.push_back(path(member, i));
      return Dataset::from_source(
          std::make_shared<TFRecordSource>(paths,
                                           TFRecordOptions{.input_shape = {2, 2, 1},
                                                           .skip_damage = skip_damage,
                                                           .exchange = exchange_of(member)},
                                           "shared"));
    });
  }

  /// Writes the file for all members, intact for those of `readers`.
  void write_copies(const std::string& name, const std::string& bytes,
                    const std::set<int>& readers) const {
    for (int member = 0; member < kMembers; ++member) {
      const std::filesystem::path folder = directory_ / fmt::format("{}", member);
      std::filesystem::create_directory(folder);
      write_bytes(folder / name,
                  readers.contains(member) ? bytes : '"' + std::string(bytes.size() - 1, '?'));
    }
  }

  const TemporaryDirectory directory_;
  std::vector<std::string> parts_ = std::vector<std::string>(kMembers);
  std::barrier<> barrier_{kMembers};
  std::vector<std::optional<Dataset>> data_;
  std::vector<std::string> errors_;
};

TEST_F(SharedFiles, AreReadByOneMemberEach) {
  write_files();
  for (const char* from : {"the records", "the indexes"}) {
    open();
    ASSERT_THAT(errors_, ::testing::Each("")) << from;
    int first = 0;
    for (int i = 0; i < kFiles; first += ++i) {
      const int reader = i % kMembers;
      for (int next = 0; next < kMembers; ++next) {
        const int member = (reader + next) % kMembers;
        const RecordSource& source = data_[static_cast<std::size_t>(member)]->source();
        EXPECT_EQ(source.size(), 28);
        EXPECT_EQ(source.info().description,
                  "shared, labels from 1 to 7 (8 classes, none of class 0)");
        // Members read files that another member of the node has decompressed.
        if (member == reader || (i % 2 == 1 && node_of(member) == node_of(reader)))
          EXPECT_EQ(read(source, first + i).label(), i + 1) << from;
        else
          EXPECT_NE(data_error_of([&] { read(source, first + i); }), "");
        EXPECT_EQ(std::filesystem::exists(path(member, i).string() + ".index"), member == reader);
      }
    }
  }
}

TEST_F(SharedFiles, AnErrorOfOneMemberIsThrownOnAll) {
  write_files();
  const std::string whole = read_bytes(path(1, 1));
  for (int member = 0; member < kMembers; ++member)
    write_bytes(path(member, 1), member == 1 ? whole.substr(0, whole.size() - 9)
                                             : std::string(whole.size() - 9, '?'));
  open();
  EXPECT_THAT(errors_, ::testing::Each(::testing::AllOf(
                           ::testing::HasSubstr(path(1, 1).string()),
                           ::testing::HasSubstr("expected a complete gzip stream"))));
  open(true);
  for (const auto& data : data_) {
    ASSERT_TRUE(data);
    ASSERT_EQ(data->source().info().damage.size(), 1u);
    EXPECT_EQ(data->source().info().damage.front().location.file, path(1, 1).string());
    EXPECT_EQ(data->size(), data_[0]->size());
  }
  // Only member 0 would know the number of classes without reading all labels.
  const std::filesystem::path description = path(0, 0).parent_path() / kDatasetJson;
  write_bytes(description, "{}");
  open(true);
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr(
                           "dataset.json] expected a file of the same name and size on all ranks; "
                           "rank 1 has another one than rank 0")));
  std::filesystem::remove(description);
  std::filesystem::remove(path(0, 1));  // member 0 does not read it
  open();
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr("expected a file that can be read")));
  write_bytes(path(0, 1), "another");
  open(true);
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr(
                           "1.tfrecord] expected a file of the same name and size on all ranks; "
                           "rank 1 has another one than rank 0")));
}

/// The number of mappings of this process for each unnamed shared memory.
std::vector<int> shared_mappings() {
  std::map<std::string, int> counts;
  std::ifstream maps("/proc/self/maps");
  for (std::string range, access, offset, device, inode, name;
       maps >> range >> access >> offset >> device >> inode && std::getline(maps, name);)
    if (name.find("memfd:lockstep") != std::string::npos) ++counts[inode];
  std::vector<int> mappings;
  for (const auto& [inode, count] : counts) mappings.push_back(count);
  return mappings;
}

TEST_F(SharedFiles, OfTablesAndArraysAreReadByOneMemberOfANode) {
  struct Case {
    std::map<std::string, std::string> files;  // the damaged one first
    std::string before, after;                 // the text around the directory in --data
  };
  const std::string table =
      "color,size,price,kind\nred,5,2,apple\ngreen,,3,pear\nyellow,4,1,apple\n";
  const std::string options = ":categorical=color,missing=indicator,";
  const std::string images("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02\1\2\3\4", 20);
  const std::string labels("\0\0\x08\x01\0\0\0\x02\0\x05", 10);
  for (const auto& [files, before, after] :
       {Case{{{"table", table}}, "csv:", "/table" + options + "label=kind"},
        Case{{{"table", table}}, "csv:", "/table" + options + "targets=price,drop=kind"},
        Case{{{"train-images-idx3-ubyte", images}, {"train-labels-idx1-ubyte", labels}},
             "idx:",
             ""}}) {
    const auto open_data_of = [&](int member, const IndexExchange& exchange) {
      const std::string folder = (directory_ / fmt::format("{}", member)).string();
      return open_data(before + folder + after, {.tfrecord = {.exchange = exchange}});
    };
    const auto open_all = [&](const std::set<int>& readers, rlim_t most = RLIM_INFINITY) {
      for (const auto& [name, bytes] : files) write_copies(name, bytes, readers);
      const ResourceLimit limit(RLIMIT_FSIZE, most);
      open_each([&](int member) { return open_data_of(member, exchange_of(member)); });
    };
    open_all({0, kMembers - 1});
    ASSERT_THAT(errors_, ::testing::Each("")) << before;
    EXPECT_THAT(shared_mappings(), ::testing::ElementsAre(kMembers - 1));
    const Dataset alone = open_data_of(0, {});
    for (const auto& data : data_) {
      ASSERT_EQ(data->size(), alone.size());
      EXPECT_EQ(data->spec(), alone.spec());
      EXPECT_EQ(data->source().info().class_names, alone.source().info().class_names);
      EXPECT_EQ(data->source().info().feature_names, alone.source().info().feature_names);
      EXPECT_EQ(data->source().info().preparation, alone.source().info().preparation);
      for (std::int64_t id = 0; id < alone.size(); ++id) {
        const ReadSample sample = read(data->source(), id);
        const ReadSample expected = read(alone.source(), id);
        EXPECT_EQ(sample.features(), expected.features());
        EXPECT_EQ(sample.values(), expected.values());
        EXPECT_EQ(sample.label(), expected.label());
      }
    }
    const auto path_of = [&](int member) {
      return fmt::format("{}/{}", member, files.begin()->first);
    };
    open_all({0, 1, 2});
    EXPECT_THAT(errors_, ::testing::Each(::testing::AllOf(
                             errors_[0], ::testing::HasSubstr(path_of(kMembers - 1)))));
    open_all({0});
    for (const auto& [name, bytes] : files) {
      std::string other = bytes;
      const std::size_t number = other.find('5');  // in a feature
      other[std::min(number, other.size() - 1)] = number == std::string::npos ? 3 : '6';
      write_bytes(directory_ / fmt::format("{}/{}", kMembers - 1, name), other);
    }
    open_each([&](int member) { return open_data_of(member, exchange_of(member)); });
    EXPECT_THAT(errors_,
                ::testing::Each(::testing::AllOf(
                    ::testing::HasSubstr("[data] expected the same "),
                    ::testing::HasSubstr(fmt::format(
                        " on all nodes; rank {} read other contents than rank 0", kMembers - 1)))))
        << before;
    // Without shared memory, every member reads.
    open_all({0, 2, kMembers - 1}, 0);
    EXPECT_THAT(errors_,
                ::testing::Each(::testing::AllOf(errors_[0], ::testing::HasSubstr(path_of(1)))));
    open_all({0, 1, 2, kMembers - 1}, 0);
    EXPECT_THAT(errors_, ::testing::Each("")) << before;
    EXPECT_THAT(shared_mappings(), ::testing::IsEmpty());
  }
}

TEST_F(SharedFiles, OfTextAreReadByOneMemberOfANode) {
  const std::string text = "one\ntwo\nthree and four\nfive\n";
  for (const char* options : {":length=4", ":length=4,stride=2", ":length=8,documents=lines"}) {
    write_copies("text", text, {0, kMembers - 1});
    const auto open_data_of = [&](int member, const IndexExchange& exchange) {
      return open_data(
          "text:" + (directory_ / fmt::format("{}", member)).string() + "/text" + options,
          {.tfrecord = {.exchange = exchange}});
    };
    open_each([&](int member) { return open_data_of(member, exchange_of(member)); });
    ASSERT_THAT(errors_, ::testing::Each("")) << options;
    EXPECT_THAT(shared_mappings(), ::testing::ElementsAre(kMembers - 1));
    const Dataset alone = open_data_of(0, {});
    for (const auto& data : data_) {
      ASSERT_EQ(data->size(), alone.size());
      EXPECT_EQ(data->spec(), alone.spec());
      EXPECT_EQ(data->source().info().preparation, alone.source().info().preparation);
      for (std::int64_t id = 0; id < alone.size(); ++id) {
        EXPECT_EQ(read(data->source(), id).memory.inputs, read(alone.source(), id).memory.inputs);
        EXPECT_EQ(read(data->source(), id).memory.targets, read(alone.source(), id).memory.targets);
      }
    }
    write_copies("text", "\xff" + text, {0, kMembers - 1});
    open_each([&](int member) { return open_data_of(member, exchange_of(member)); });
    EXPECT_THAT(errors_, ::testing::Each(
                             ::testing::AllOf(errors_[0], ::testing::HasSubstr("0/text] expected "
                                                                               "text in UTF-8"))));
  }
}

TEST(RecentFiles, KeepsRecentlyUsedFilesAndThoseInUse) {
  const TemporaryDirectory directory;
  write_records(directory / "a.tfrecord", {"zero"});
  int opened = 0;
  const RecentFiles files([&](std::size_t) {
    ++opened;
    return RecordFile(directory / "a.tfrecord");
  });
  constexpr std::size_t kGroups = 16;
  constexpr std::size_t kStep = kGroups * kGroups;  // files of one group
  constexpr std::size_t kMaxPerGroup = RecentFiles::kMaxOpen / kGroups;
  const auto held = files.get(0);
  for (std::size_t i = 0; i < kMaxPerGroup; ++i) files.get(i * kStep);
  EXPECT_EQ(opened, static_cast<int>(kMaxPerGroup));
  files.get(0);
  files.get(kMaxPerGroup * kStep);  // replaces 1
  EXPECT_EQ(opened, static_cast<int>(kMaxPerGroup) + 1);
  EXPECT_EQ(files.get(0), held);
  EXPECT_EQ(opened, static_cast<int>(kMaxPerGroup) + 1);
  files.get(kStep);
  EXPECT_EQ(opened, static_cast<int>(kMaxPerGroup) + 2);
  for (std::size_t i = 2; i < 3 * kMaxPerGroup; ++i) files.get(i * kStep);
  ReadWindow window;
  EXPECT_EQ(held->record(0, 0, 4, window), "zero");
  EXPECT_NE(files.get(0), held);
}

}  // namespace
}  // namespace lockstep::inline v0::data
