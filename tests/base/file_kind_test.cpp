#include "lockstep/base/file/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::inline v0 {
namespace {

using namespace std::string_literals;
using Content = FileKind::Content;
using ::testing::HasSubstr;

std::string zip_with(const std::string& name) {
  return "PK\x03\x04" + std::string(22, '\1') + static_cast<char>(name.size()) + "\0\0\0"s + name +
         "and the rest";
}

TEST(FileKind, NamesFilesByTheirFirstBytes) {
  struct Case {
    std::string head;
    Content content;
    std::string name;
  };
  const Case cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
       Content::placeholder, "a Git LFS pointer: git lfs pull"},
      {"<!DOCTYPE html>\n<html>", Content::markup, "an HTML page"},
      {"\xef\xbb\xbf\r\n  <HTML lang=\"en\">", Content::markup, "an HTML page"},
      {"<?xml version=\"1.0\"?>", Content::markup, "an XML file"},
      {"{\n  \"metadata\": {\"total_size\": 1}", Content::json, "JSON"},
      {"[{\"a\": 1}]", Content::json, "JSON"},
      {"\x1f\x8b\x08\0\0\0\0\0"s, Content::other, "a gzip file: decompress it"},
      {"BZh91AY&SY\x01", Content::other, "a bzip2 file"},
      {"\xfd\x37zXZ\0\0"s, Content::other, "an xz file"},
      {"\x28\xb5\x2f\xfd\x04", Content::other, "a zstd file"},
      {"000000.cls" + std::string(247, '\0') + "ustar  \0"s, Content::other, "a tar archive"},
      {zip_with("archive/data.pkl"), Content::torch, "as torch.save writes"},
      {zip_with("weights.npy"), Content::arrays, "NumPy arrays (.npz)"},
      {zip_with("[Content_Types].xml"), Content::other, "an Excel or other Office file"},
      {zip_with("cat/1.jpg"), Content::other, "a zip archive: unpack it"},
      {"PK\x03\x04", Content::other, "a zip archive: unpack it"},
      {"\x80\x02}q\x01", Content::torch, "a Python pickle"},
      {"\x89HDF\r\n\x1a\n", Content::arrays, "an HDF5 file"},
      {"\x93NUMPY\x01\0v\0"s, Content::arrays, "a NumPy array"},
      {"\x08\x07\x12\x07pytorch", Content::arrays, "an ONNX model"},
      {"GGUF\3\0\0\0"s, Content::arrays, "a GGUF file"},
      {"PAR1\x15\x04", Content::other, "a Parquet file"},
      {"ARROW1\0\0"s, Content::other, "an Arrow file"},
      {"\x40\0\0\0\0\0\0\0{\"__metadata__\""s, Content::other, "a safetensors file"},
      {"RIFF\x10\0\0\0WEBPVP8 "s, Content::image, "a WebP image, which is not supported"},
      {"\xff\xd8\xff\xe0", Content::image, "a JPEG image"},
      {"\0\0\0\x24"s + "ftypheic", Content::image, "an HEIC image, as of an iPhone"},
      {"\0\0\0\x20"s + "ftypavif", Content::image, "an AVIF image"},
      {"GIF89a\x01", Content::image, "a GIF image, which is not supported"},
      {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Content::other, "an Excel or other Office file"},
      {"7z\xbc\xaf\x27\x1c", Content::other, "a 7z archive"},
      {"Rar!\x1a\x07\x01", Content::other, "a RAR archive"},
      {"Obj\1\4", Content::other, "an Avro file"},
      {"sepal,petal\n1,2\n", Content::text, "text"},
      {"caf\xc3\xa9,cr\xc3\xa8me\n", Content::text, "text"},
      // Texts that only look like something else.
      {"PAR1,PAR2\n1,2\n", Content::text, "text"},
      {"ARROW1,b\n1,2\n", Content::text, "text"},
      {"[PAD]\n[UNK]\n", Content::text, "text"},
      {"{x} and (y)", Content::text, "text"},
      {"a,b,c,d,WEBP\n", Content::text, "text"},
      {"12345678{\"a\"", Content::text, "text"},
      {"", Content::unknown, ""},
      {"\x05\0\0\0\0\0\0\0\x77\x8a\x12\x03"s, Content::unknown, ""},
  };
  for (const auto& [head, content, name] : cases) {
    const FileKind kind = file_kind(head);
    EXPECT_EQ(kind.content, content) << head;
    EXPECT_THAT(std::string(kind.name), HasSubstr(name));
    EXPECT_EQ(kind.is_known(), content != Content::unknown);
  }
}

}  // namespace
}  // namespace lockstep::inline v0
