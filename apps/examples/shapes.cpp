// Generates images of colored shapes, and a sentence about each: "a red circle", "two blue squares
// above a green triangle". docs/text.md trains a network on them.
//
//     example_shapes DIRECTORY [COUNT [SEED]]
//
// Writes to DIRECTORY: image-0.png, ..., a table captions.csv with the columns image and caption,
// and vocab.txt with the words of the captions. The same seed produces the same files.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <lockstep/data/image/encode_png.h>

namespace {

constexpr int kSide = 32;  // pixels

using Color = std::array<std::uint8_t, 3>;

struct NamedColor {
  const char* name;
  Color color;
};
constexpr NamedColor kColors[] = {
    {"red", {220, 40, 40}}, {"green", {40, 180, 60}}, {"blue", {50, 80, 220}}};

enum class Shape { circle, square, triangle };
constexpr const char* kShapes[] = {"circle", "square", "triangle"};

/// Whether a shape around (0, 0) of this radius contains a point.
bool contains(Shape shape, double radius, double x, double y) {
  if (shape == Shape::circle) return x * x + y * y <= radius * radius;
  const double half = 0.85 * radius;
  if (shape == Shape::square) return std::abs(x) <= half && std::abs(y) <= half;
  return y >= -radius && y <= half && std::abs(x) <= 0.55 * (y + radius);
}

/// One or two shapes of a kind, side by side.
struct Group {
  unsigned count = 1;
  unsigned color = 0;
  unsigned shape = 0;

  std::string text() const {
    return fmt::format("{} {} {}{}", count == 1 ? "a" : "two", kColors[color].name, kShapes[shape],
                       count == 1 ? "" : "s");
  }
};

/// An image [kSide, kSide, 3] and its caption.
class Scene {
 public:
  explicit Scene(std::mt19937& random) : random_(random), pixels_(kSide * kSide * 3) {
    const auto background = static_cast<std::uint8_t>(below(40));
    for (std::uint8_t& value : pixels_) value = background;
    const unsigned groups = 1 + below(2);
    for (unsigned i = 0; i < groups; ++i) {
      const Group group{.count = 1 + below(2), .color = below(3), .shape = below(3)};
      caption_ += (i == 0 ? "" : " above ") + group.text();
      draw(group, groups == 1 ? kSide / 2 : kSide / 4 + static_cast<int>(i) * kSide / 2);
    }
  }

  const std::string& caption() const { return caption_; }
  lockstep::data::ImageView view() const {
    return lockstep::data::view_of(pixels_, kSide, kSide, 3);
  }

 private:
  // A whole number from 0; the remainder is the same with every library.
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  int shift() { return static_cast<int>(below(3)) - 1; }

  void draw(const Group& group, int row) {
    for (unsigned i = 0; i < group.count; ++i) {
      const int column = group.count == 1 ? kSide / 2 : kSide / 4 + static_cast<int>(i) * kSide / 2;
      const int x = column + shift();
      const int y = row + shift();
      draw(static_cast<Shape>(group.shape), kColors[group.color].color, 5 + below(3), x, y);
    }
  }
  void draw(Shape shape, const Color& color, double radius, int x, int y) {
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column)
        if (contains(shape, radius, column - x, row - y))
          for (int channel = 0; channel < 3; ++channel)
            pixels_[(row * kSide + column) * 3 + channel] = color[channel];
  }

  std::mt19937& random_;
  std::vector<std::uint8_t> pixels_;
  std::string caption_;
};

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
}

void write_shapes(const std::filesystem::path& directory, int count, unsigned seed) {
  std::filesystem::create_directories(directory);
  std::mt19937 random(seed);
  std::string table = "image,caption\n";
  for (int i = 0; i < count; ++i) {
    const Scene scene(random);
    const std::string name = fmt::format("image-{}.png", i);
    write_file(directory / name, lockstep::data::to_png(scene.view()));
    table += fmt::format("{},{}\n", name, scene.caption());
  }
  write_file(directory / "captions.csv", table);
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\ntwo\nabove\n";
  for (const NamedColor& color : kColors) words += fmt::format("{}\n", color.name);
  for (const char* shape : kShapes) words += fmt::format("{0}\n{0}s\n", shape);
  write_file(directory / "vocab.txt", words);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: example_shapes DIRECTORY [COUNT [SEED]]\n");
    return 1;
  }
  try {
    const int count = argc > 2 ? std::atoi(argv[2]) : 1000;
    write_shapes(argv[1], count, argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1);
    fmt::print("{} images with captions in {}\n", count, argv[1]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "example_shapes: {}\n", error.what());
    return 1;
  }
}
