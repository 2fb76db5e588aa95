#include "tests/support/pretend_cuda/convolution.h"

namespace lockstep::inline v0::pretend {
namespace {

std::ptrdiff_t output_size(std::ptrdiff_t size, std::ptrdiff_t filter, std::ptrdiff_t pad,
                           std::ptrdiff_t step, std::ptrdiff_t dilation) {
  const std::ptrdiff_t free = size + 2 * pad - ((filter - 1) * dilation + 1);
  return free < 0 ? 0 : free / step + 1;
}

// Offsets of a filter element and of the image elements that it multiplies.
struct Tap {
  std::ptrdiff_t x;       // first channel of the input
  std::ptrdiff_t y;       // first channel of the output
  std::ptrdiff_t within;  // offset in the filter
};

template <typename Each>
void for_each_tap(const Problem& p, bool backwards, Each each) {
  for (std::ptrdiff_t i = 0; i < p.x.n; ++i) {
    const std::ptrdiff_t n = backwards ? p.x.n - 1 - i : i;
    for (std::ptrdiff_t h = 0; h < p.y.h; ++h)
      for (std::ptrdiff_t w = 0; w < p.y.w; ++w)
        for (std::ptrdiff_t r = 0; r < p.filter.h; ++r)
          for (std::ptrdiff_t s = 0; s < p.filter.w; ++s) {
            const std::ptrdiff_t x_h = h * p.steps.h - p.steps.pad_h + r * p.steps.dilation_h;
            const std::ptrdiff_t x_w = w * p.steps.w - p.steps.pad_w + s * p.steps.dilation_w;
            if (x_h < 0 || x_h >= p.x.h || x_w < 0 || x_w >= p.x.w) continue;
            each(Tap{.x = ((n * p.x.h + x_h) * p.x.w + x_w) * p.x.c,
                     .y = ((n * p.y.h + h) * p.y.w + w) * p.y.c,
                     .within = r * p.filter.w + s});
          }
  }
}

// each(channel of x, filter) for the first channel of each filter's group.
template <typename Each>
void for_each_filter(const Problem& p, Each each) {
  const std::ptrdiff_t filters = p.filter.n / p.steps.groups;
  for (std::ptrdiff_t group = 0; group < p.steps.groups; ++group)
    for (std::ptrdiff_t k = group * filters; k < (group + 1) * filters; ++k)
      each(group * p.filter.c, k);
}

std::ptrdiff_t place_in_filter(const Problem& p, std::ptrdiff_t k, std::ptrdiff_t within) {
  return (k * p.filter.h * p.filter.w + within) * p.filter.c;
}

}  // namespace

Shape output_shape(const Shape& x, const Shape& filter, const Steps& steps) {
  return {.n = x.n,
          .c = filter.n,
          .h = output_size(x.h, filter.h, steps.pad_h, steps.h, steps.dilation_h),
          .w = output_size(x.w, filter.w, steps.pad_w, steps.w, steps.dilation_w)};
}

std::vector<float> convolve(const Problem& p, std::span<const float> x,
                            std::span<const float> filter) {
  // Filters innermost, so that the inner loop runs over adjacent sums.
  const std::ptrdiff_t places = p.filter.h * p.filter.w * p.filter.c;
  std::vector<float> turned(filter.size());
  for (std::ptrdiff_t k = 0; k < p.filter.n; ++k)
    for (std::ptrdiff_t place = 0; place < places; ++place)
      turned[place * p.filter.n + k] = filter[k * places + place];
  const std::ptrdiff_t filters = p.filter.n / p.steps.groups;
  std::vector<float> y(p.y.count());
  for_each_tap(p, false, [&](const Tap& at) {
    for (std::ptrdiff_t group = 0; group < p.steps.groups; ++group)
      for (std::ptrdiff_t c = 0; c < p.filter.c; ++c) {
        const float value = x[at.x + group * p.filter.c + c];
        const float* weights = &turned[(at.within * p.filter.c + c) * p.filter.n + group * filters];
        float* sums = &y[at.y + group * filters];
        for (std::ptrdiff_t k = 0; k < filters; ++k) sums[k] += value * weights[k];
      }
  });
  return y;
}

std::vector<float> gradient_of_data(const Problem& p, std::span<const float> y_gradient,
                                    std::span<const float> filter) {
  std::vector<float> x_gradient(p.x.count());
  for_each_tap(p, false, [&](const Tap& at) {
    for_each_filter(p, [&](std::ptrdiff_t channel, std::ptrdiff_t k) {
      const float value = y_gradient[at.y + k];
      const float* weights = &filter[place_in_filter(p, k, at.within)];
      float* sums = &x_gradient[at.x + channel];
      for (std::ptrdiff_t c = 0; c < p.filter.c; ++c) sums[c] += value * weights[c];
    });
  });
  return x_gradient;
}

std::vector<float> gradient_of_filter(const Problem& p, std::span<const float> x,
                                      std::span<const float> y_gradient, bool backwards) {
  std::vector<float> gradient(p.filter.count());
  for_each_tap(p, backwards, [&](const Tap& at) {
    for_each_filter(p, [&](std::ptrdiff_t channel, std::ptrdiff_t k) {
      const float value = y_gradient[at.y + k];
      const float* values = &x[at.x + channel];
      float* sums = &gradient[place_in_filter(p, k, at.within)];
      for (std::ptrdiff_t c = 0; c < p.filter.c; ++c) sums[c] += value * values[c];
    });
  });
  return gradient;
}

}  // namespace lockstep::inline v0::pretend
