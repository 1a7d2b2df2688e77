// Convolutions through oneDNN. A call is split by images and channels from its shape alone; each part copies its
// operands into oneDNN's blocked order, runs on one thread and copies the result back, which measures 1.2 to 20 times
// faster than oneDNN's kernels for plain order.
#include "backends/cpu/conv.h"

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cpu/gemm.h"
#include "backends/cpu/onednn.h"
#include "base/lru_cache.h"
#include "base/parallel.h"
#include "rlx/base.h"

namespace rlx::cpu {

std::int64_t ConvArgs::out(int axis) const {
  auto a = std::size_t(axis);
  std::int64_t room = in[a] + pad_begin[a] + pad_end[a] - dilation[a] * (kernel[a] - 1) - 1;
  return room < 0 ? 0 : room / stride[a] + 1;
}

namespace {

using i64 = std::int64_t;
using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;

enum class Pass : i64 { Forward, Data, Weights };

constexpr double kChunkFlops = 2e6;           // worth a thread's while
constexpr i64 kChunks = 16;                   // more than these are not looked for among the channels
constexpr i64 kPartialBytes = i64(16) << 20;  // of partial sums of the weights' gradient

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

i64 product(const ConvArgs& c, i64 (*f)(const ConvArgs&, int)) {
  i64 n = 1;
  for (int i = 0; i < c.spatial; ++i) n *= f(c, i);
  return n;
}
i64 in_size(const ConvArgs& c) {
  return product(c, [](const ConvArgs& a, int i) { return a.in[std::size_t(i)]; });
}
i64 out_size(const ConvArgs& c) {
  return product(c, [](const ConvArgs& a, int i) { return a.out(i); });
}
i64 kernel_size(const ConvArgs& c) {
  return product(c, [](const ConvArgs& a, int i) { return a.kernel[std::size_t(i)]; });
}

// ---------------------------------------------------------------------------------------------- one part of a call

/// A part: so many images, and so many of the channels or groups along which the pass is split. `like` is the number of
/// images of the part whose order of the weights this one shares.
struct PartKey {
  Pass pass;
  ConvArgs args;  // its batch is 0
  i64 images, channels, like;

  std::vector<i64> flat() const {
    std::vector<i64> v{i64(pass),   args.spatial, args.in_channels, args.out_channels,
                       args.groups, images,       channels,         like};
    for (auto* a : {&args.in, &args.kernel, &args.stride, &args.dilation, &args.pad_begin, &args.pad_end})
      v.insert(v.end(), a->begin(), a->begin() + args.spatial);
    return v;
  }
  bool operator==(const PartKey& other) const { return flat() == other.flat(); }
};
struct PartHash {
  std::size_t operator()(const PartKey& key) const {
    std::uint64_t h = 0x9e3779b97f4a7c15u;
    for (i64 v : key.flat()) h = (h ^ std::uint64_t(v)) * 0xbf58476d1ce4e5b9u, h ^= h >> 29;
    return h;
  }
};

/// Few input channels leave the blocked kernels of the data gradient mostly idle.
bool wants_plain(Pass pass, const ConvArgs& c) { return pass == Pass::Data && c.groups == 1 && c.in_channels < 8; }

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

/// The primitives of a part: the convolution, and the copies between plain order and the convolution's.
class Part {
 public:
  Part(const PartKey& key, const Desc* weights_like) : pass_(key.pass) {
    describe(key);
    OneThread one;
    bool plain = wants_plain(key.pass, key.args);
    Desc any_x(x_plain_.dims(), kF32, dnnl::memory::format_tag::any),
        any_y(y_plain_.dims(), kF32, dnnl::memory::format_tag::any);
    Desc any_w(w_plain_.dims(), kF32, dnnl::memory::format_tag::any);
    make(key.args, plain ? x_plain_ : any_x,
         weights_like ? *weights_like
         : plain      ? w_plain_
                      : any_w,
         plain ? y_plain_ : any_y);
    bool forward = pass_ == Pass::Forward, data = pass_ == Pass::Data, weights = pass_ == Pass::Weights;
    copy_x_ = copy(x_plain_, x_, data);
    copy_w_ = copy(w_plain_, w_, weights);
    copy_y_ = copy(y_plain_, y_, forward);
  }

  std::size_t weight_bytes() const { return w_.get_size(); }
  const Desc& weights() const { return w_; }
  /// From the plain order of a slice of w to this part's.
  void pack(const float* w, void* packed) const {
    if (copy_w_)
      transfer(copy_w_, w, packed);
    else
      std::memcpy(packed, w, w_.get_size());
  }

  /// `w` is packed, except that of the weights' gradient, which is plain.
  void run(const float* x, const void* w, const float* y) const {
    bool forward = pass_ == Pass::Forward, data = pass_ == Pass::Data, weights = pass_ == Pass::Weights;
    void* bx = stage(copy_x_, x_, x, Scratch::ConvX);
    void* by = stage(copy_y_, y_, y, Scratch::ConvY);
    void* bw = weights ? stage(copy_w_, w_, static_cast<const float*>(w), Scratch::ConvWeights) : const_cast<void*>(w);
    if (!data) transfer(copy_x_, x, bx);
    if (!forward) transfer(copy_y_, y, by);
    auto& e = onednn_engine();
    std::unordered_map<int, dnnl::memory> args{
        {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, {x_, e, bx}},
        {weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, {w_, e, bw}},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, {y_, e, by}},
        {DNNL_ARG_SCRATCHPAD, {scratch_, e, thread_scratch(Scratch::OneDnn, scratch_.get_size())}}};
    OneThread one;
    convolution_.execute(onednn_stream(), args);
    if (data) transfer(copy_x_, bx, x);
    if (forward) transfer(copy_y_, by, y);
    if (weights) transfer(copy_w_, bw, w);
  }

 private:
  void describe(const PartKey& key) {
    const ConvArgs& c = key.args;
    bool grouped = c.groups > 1;
    i64 groups = grouped ? key.channels : 1;
    i64 in = c.in_channels / c.groups, out = c.out_channels / c.groups;
    if (!grouped) (pass_ == Pass::Data ? in : out) = key.channels;
    Dims x{key.images, groups * in}, y{key.images, groups * out}, w{out, in};
    Dims x_step{c.in_channels * in_size(c), in_size(c)}, y_step{c.out_channels * out_size(c), out_size(c)};
    Dims w_step{c.in_channels / c.groups * kernel_size(c), kernel_size(c)};
    if (grouped) w.insert(w.begin(), groups), w_step.insert(w_step.begin(), out * w_step[0]);
    i64 x_left = in_size(c), y_left = out_size(c), w_left = kernel_size(c);
    for (int i = 0; i < c.spatial; ++i) {
      auto a = std::size_t(i);
      x.push_back(c.in[a]), y.push_back(c.out(i)), w.push_back(c.kernel[a]);
      x_step.push_back(x_left /= c.in[a]), y_step.push_back(y_left /= c.out(i)),
          w_step.push_back(w_left /= c.kernel[a]);
    }
    x_plain_ = Desc(x, kF32, x_step), y_plain_ = Desc(y, kF32, y_step), w_plain_ = Desc(w, kF32, w_step);
  }

  void make(const ConvArgs& c, const Desc& x, const Desc& w, const Desc& y) {
    Dims stride, dilation, begin, end;
    for (std::size_t i = 0; i < std::size_t(c.spatial); ++i) {
      stride.push_back(c.stride[i]), dilation.push_back(c.dilation[i] - 1);
      begin.push_back(c.pad_begin[i]), end.push_back(c.pad_end[i]);
    }
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    auto attr = own_scratch();
    dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, x, w, y, stride, dilation, begin, end}, attr, onednn_engine());
    auto keep = [&](const Desc& dx, const Desc& dw, const Desc& dy, const Desc& scratch) {
      x_ = dx, w_ = dw, y_ = dy, scratch_ = scratch;
    };
    if (pass_ == Pass::Forward) {
      convolution_ = dnnl::convolution_forward(forward);
      keep(forward.src_desc(), forward.weights_desc(), forward.dst_desc(), forward.scratchpad_desc());
    } else if (pass_ == Pass::Data) {
      dnnl::convolution_backward_data::primitive_desc back({kDirect, x, w, y, stride, dilation, begin, end}, attr,
                                                           onednn_engine(), forward);
      convolution_ = dnnl::convolution_backward_data(back);
      keep(back.diff_src_desc(), back.weights_desc(), back.diff_dst_desc(), back.scratchpad_desc());
    } else {
      dnnl::convolution_backward_weights::primitive_desc back({kDirect, x, w, y, stride, dilation, begin, end}, attr,
                                                              onednn_engine(), forward);
      convolution_ = dnnl::convolution_backward_weights(back);
      keep(back.src_desc(), back.diff_weights_desc(), back.diff_dst_desc(), back.scratchpad_desc());
    }
  }

  struct Copy {
    dnnl::reorder op;
    Desc from, to, scratch;
  };

  /// The copy from plain order (or to it, `back`); nothing where the orders are the same.
  static std::optional<Copy> copy(const Desc& plain, const Desc& blocked, bool back) {
    if (plain == blocked) return std::nullopt;
    Desc from = back ? blocked : plain, to = back ? plain : blocked;
    auto& e = onednn_engine();
    dnnl::reorder::primitive_desc desc(e, from, e, to, own_scratch());
    return Copy{dnnl::reorder(desc), from, to, desc.scratchpad_desc()};
  }

  static void transfer(const std::optional<Copy>& copy, const void* source, const void* target) {
    if (!copy) return;
    OneThread one;
    auto& e = onednn_engine();
    dnnl::memory from(copy->from, e, const_cast<void*>(source)), to(copy->to, e, const_cast<void*>(target));
    dnnl::memory scratch(copy->scratch, e, thread_scratch(Scratch::OneDnn, copy->scratch.get_size()));
    copy->op.execute(onednn_stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch}});
  }

  static void* stage(const std::optional<Copy>& copy, const Desc& desc, const float* user, Scratch slot) {
    return copy ? thread_scratch(slot, desc.get_size()) : const_cast<float*>(user);
  }

  Pass pass_;
  Desc x_plain_, y_plain_, w_plain_, x_, y_, w_, scratch_;
  dnnl::primitive convolution_;
  std::optional<Copy> copy_x_, copy_w_, copy_y_;
};

std::shared_ptr<Part> part(const PartKey& key) {
  static auto& cache = *new LruCache<PartKey, Part, PartHash>(256);
  return cache.get(key, [&] {
    if (key.like == key.images) return std::make_shared<Part>(key, nullptr);
    PartKey model = key;
    model.images = key.like;
    Desc weights = part(model)->weights();
    return std::make_shared<Part>(key, &weights);
  });
}

// ---------------------------------------------------------------------------------------------- a call

/// How a call is cut: blocks of images times blocks of channels (or groups).
struct Cut {
  i64 images, image_blocks, channels, channel_blocks;
};

double image_flops(const ConvArgs& c) {
  return 2.0 * double(c.out_channels) * double(out_size(c)) * double(c.in_channels / c.groups) * double(kernel_size(c));
}

Cut choose_cut(Pass pass, const ConvArgs& c) {
  double flops = image_flops(c);
  Cut cut{};
  cut.images = std::clamp<i64>(i64(kChunkFlops / flops) + 1, 1, c.batch);
  if (pass == Pass::Weights) {  // each block of images has its own partial sums
    i64 bytes = c.out_channels * (c.in_channels / c.groups) * kernel_size(c) * 4;
    i64 most = std::clamp<i64>(kPartialBytes / bytes, 1, 8);
    cut.images = std::max(cut.images, ceil_div(c.batch, most));
  }
  cut.image_blocks = ceil_div(c.batch, cut.images);
  i64 length = c.groups > 1 ? c.groups : pass == Pass::Data ? c.in_channels : c.out_channels;
  bool depthwise = c.groups > 1 && c.groups == c.in_channels;
  i64 unit = c.groups > 1 && !depthwise ? 1 : length >= 64 && !depthwise ? 32 : 16;
  // each block of channels copies the images anew, which must stay the smaller part
  double least = std::max(kChunkFlops, 60.0 * double(cut.images * c.in_channels * in_size(c)));
  i64 worth = std::max<i64>(1, i64(double(cut.images) * flops / least));
  i64 blocks = wants_plain(pass, c)
                   ? 1
                   : std::clamp<i64>(kChunks / cut.image_blocks, 1, std::min(worth, ceil_div(length, unit)));
  cut.channels = std::min(length, ceil_div(ceil_div(length, blocks), unit) * unit);
  cut.channel_blocks = ceil_div(length, cut.channels);
  return cut;
}

/// The parts of a call and where each finds its operands.
class Call {
 public:
  Call(Pass pass, const ConvArgs& c) : pass_(pass), args_(c), cut_(choose_cut(pass, c)) {
    args_.batch = 0;
    i64 length = c.groups > 1 ? c.groups : pass == Pass::Data ? c.in_channels : c.out_channels;
    i64 rest_images = c.batch - (cut_.image_blocks - 1) * cut_.images;
    i64 rest_channels = length - (cut_.channel_blocks - 1) * cut_.channels;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j)
        parts_[i][j] =
            part({pass, args_, i ? rest_images : cut_.images, j ? rest_channels : cut_.channels, cut_.images});
  }

  const Cut& cut() const { return cut_; }
  const Part& at(i64 image_block, i64 channel_block) const {
    return *parts_[image_block == cut_.image_blocks - 1][channel_block == cut_.channel_blocks - 1];
  }
  i64 x_offset(i64 image_block, i64 channel_block) const {
    i64 channel = args_.groups > 1 ? args_.in_channels / args_.groups : pass_ == Pass::Data ? 1 : 0;
    return (image_block * cut_.images * args_.in_channels + channel_block * cut_.channels * channel) * in_size(args_);
  }
  i64 y_offset(i64 image_block, i64 channel_block) const {
    i64 channel = args_.groups > 1 ? args_.out_channels / args_.groups : pass_ == Pass::Data ? 0 : 1;
    return (image_block * cut_.images * args_.out_channels + channel_block * cut_.channels * channel) * out_size(args_);
  }
  i64 w_offset(i64 channel_block) const {
    i64 filter = args_.in_channels / args_.groups;
    i64 channel = args_.groups > 1 ? args_.out_channels / args_.groups * filter : pass_ == Pass::Data ? 1 : filter;
    return channel_block * cut_.channels * channel * kernel_size(args_);
  }
  /// Where the packed weights of a block begin, and behind the last: how many bytes there are.
  std::size_t packed_offset(i64 channel_block) const {
    auto aligned = [](std::size_t n) { return (n + 63) / 64 * 64; };
    std::size_t full = aligned(at(0, 0).weight_bytes()), last = aligned(at(0, cut_.channel_blocks - 1).weight_bytes());
    return channel_block < cut_.channel_blocks ? std::size_t(channel_block) * full
                                               : std::size_t(channel_block - 1) * full + last;
  }
  std::size_t packed_bytes() const { return packed_offset(cut_.channel_blocks); }
  void pack(const float* w, std::byte* out) const {
    parallel_for(cut_.channel_blocks, [&](i64 j) { at(0, j).pack(w + w_offset(j), out + packed_offset(j)); });
  }
  /// Calls f(image block, channel block) for all of them.
  template <class F>
  void for_each(F&& f) const {
    i64 blocks = cut_.channel_blocks;
    parallel_for(cut_.image_blocks * blocks, [&](i64 chunk) { f(chunk / blocks, chunk % blocks); });
  }

 private:
  Pass pass_;
  ConvArgs args_;
  Cut cut_;
  std::shared_ptr<Part> parts_[2][2];
};

/// Whether there is anything that oneDNN may be asked; throws where the sizes make no sense.
bool check(const ConvArgs& c) {
  auto refuse = [](const std::string& what) { throw UserError("[conv] " + what); };
  if (c.spatial < 1 || c.spatial > 3) refuse("got " + std::to_string(c.spatial) + " spatial axes, expected 1 to 3");
  if (c.batch < 0 || c.in_channels < 0 || c.out_channels < 0) refuse("a size is negative");
  if (c.groups < 1) refuse("got " + std::to_string(c.groups) + " groups, expected at least 1");
  if (c.in_channels % c.groups || c.out_channels % c.groups)
    refuse("got " + std::to_string(c.in_channels) + " input and " + std::to_string(c.out_channels) +
           " output channels, expected multiples of the " + std::to_string(c.groups) + " groups");
  bool pads = true;
  for (std::size_t i = 0; i < std::size_t(c.spatial); ++i) {
    if (c.in[i] < 0) refuse("a size is negative");
    if (c.kernel[i] < 1 || c.stride[i] < 1 || c.dilation[i] < 1)
      refuse("axis " + std::to_string(i) + ": got kernel " + std::to_string(c.kernel[i]) + ", stride " +
             std::to_string(c.stride[i]) + ", dilation " + std::to_string(c.dilation[i]) + ", expected at least 1");
    pads = pads && c.pad_begin[i] >= 0 && c.pad_end[i] >= 0;
  }
  return pads;
}

bool is_empty(const ConvArgs& c) {
  return c.batch == 0 || c.in_channels == 0 || c.out_channels == 0 || in_size(c) == 0 || out_size(c) == 0;
}

void clear(float* out, i64 n) { std::fill(out, out + n, 0.0f); }

/// A kernel of one point without pads is a matrix product of channels, in plain order already.
bool is_product(const ConvArgs& c) {
  if (c.groups != 1 || kernel_size(c) != 1) return false;
  for (std::size_t i = 0; i < std::size_t(c.spatial); ++i)
    if (c.pad_begin[i] != 0 || c.pad_end[i] != 0) return false;
  return true;
}

bool reads_all(const ConvArgs& c) {
  return std::all_of(c.stride.begin(), c.stride.begin() + c.spatial, [](i64 s) { return s == 1; });
}

/// Calls f(channel of an image, offset in the channel's x, offset in its y, x step, points) for the rows of points that
/// a kernel of one point reads.
template <class F>
void for_each_sampled_row(const ConvArgs& c, F&& f) {
  i64 in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, stride[3] = {1, 1, 1};
  for (int i = 0; i < c.spatial; ++i) {
    int to = 3 - c.spatial + i;
    auto a = std::size_t(i);
    in[to] = c.in[a], out[to] = c.out(i), stride[to] = c.stride[a];
  }
  parallel_for(
      c.batch * c.in_channels, std::max<i64>(1, (1 << 14) / (out[0] * out[1] * out[2])), [&](i64 begin, i64 end) {
        for (i64 channel = begin; channel < end; ++channel)
          for (i64 d = 0; d < out[0]; ++d)
            for (i64 h = 0; h < out[1]; ++h)
              f(channel, (d * stride[0] * in[1] + h * stride[1]) * in[2], (d * out[1] + h) * out[2], stride[2], out[2]);
      });
}

/// The points of x that are read, dense.
const float* sampled(const ConvArgs& c, const float* x) {
  if (reads_all(c)) return x;
  i64 size = in_size(c), points = out_size(c);
  auto dense = static_cast<float*>(
      thread_scratch(Scratch::ConvX, std::size_t(c.batch * c.in_channels * points) * sizeof(float)));
  for_each_sampled_row(c, [=](i64 channel, i64 from, i64 to, i64 step, i64 n) {
    const float* in = x + channel * size + from;
    float* out = dense + channel * points + to;
    for (i64 i = 0; i < n; ++i) out[i] = in[i * step];
  });
  return dense;
}

void product_forward(const ConvArgs& c, const float* x, const float* w, float* y) {
  i64 size = out_size(c);
  gemm({.batch = c.batch,
        .m = c.out_channels,
        .n = size,
        .k = c.in_channels,
        .a = w,
        .a_row = c.in_channels,
        .b = sampled(c, x),
        .b_row = size,
        .b_batch = c.in_channels * size,
        .c = y,
        .c_row = size,
        .c_batch = c.out_channels * size});
}

void product_backward_data(const ConvArgs& c, const float* dy, const float* w, float* dx) {
  i64 size = in_size(c), points = out_size(c);
  std::size_t dense = std::size_t(c.batch * c.in_channels * points) * sizeof(float);
  float* out = reads_all(c) ? dx : static_cast<float*>(thread_scratch(Scratch::ConvX, dense));
  gemm({.batch = c.batch,
        .m = c.in_channels,
        .n = points,
        .k = c.out_channels,
        .a = w,
        .a_row = 1,
        .a_col = c.in_channels,
        .b = dy,
        .b_row = points,
        .b_batch = c.out_channels * points,
        .c = out,
        .c_row = points,
        .c_batch = c.in_channels * points});
  if (out == dx) return;
  parallel_for(c.batch * c.in_channels * size, 1 << 16, [=](i64 begin, i64 end) { clear(dx + begin, end - begin); });
  for_each_sampled_row(c, [=](i64 channel, i64 to, i64 from, i64 step, i64 n) {
    const float* in = out + channel * points + from;
    for (i64 i = 0; i < n; ++i) dx[channel * size + to + i * step] = in[i];
  });
}

void product_backward_weights(const ConvArgs& c, const float* x, const float* dy, float* dw) {
  i64 size = out_size(c);
  const float* dense = sampled(c, x);
  for (i64 n = 0; n < c.batch; ++n)
    gemm({.m = c.out_channels,
          .n = c.in_channels,
          .k = size,
          .a = dy + n * c.out_channels * size,
          .a_row = size,
          .b = dense + n * c.in_channels * size,
          .b_row = 1,
          .b_col = size,
          .c = dw,
          .c_row = c.in_channels,
          .accumulate = n > 0});
}

/// The call's parts, or nothing where oneDNN has no kernel.
std::optional<Call> plan(Pass pass, const ConvArgs& c) {
  try {
    return Call(pass, c);
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented || e.status == dnnl_invalid_arguments) return std::nullopt;
    throw InternalError("[conv] oneDNN: " + std::string(e.what()));
  }
}

template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const dnnl::error& e) {
    throw InternalError("[conv] oneDNN: " + std::string(e.what()));
  }
}

}  // namespace

class PackedWeights {
 public:
  explicit PackedWeights(std::size_t bytes) : bytes_(bytes + 64) {}
  std::byte* data() { return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64; }
  const std::byte* data() const { return const_cast<PackedWeights*>(this)->data(); }
  i64 channels = 0;  // of a block
  dnnl::memory::desc order;

 private:
  std::vector<std::byte> bytes_;
};

std::shared_ptr<const PackedWeights> pack_weights(const ConvArgs& c, const float* w) {
  if (!check(c) || is_empty(c) || is_product(c)) return nullptr;
  auto call = plan(Pass::Forward, c);
  if (!call) return nullptr;
  auto packed = std::make_shared<PackedWeights>(call->packed_bytes());
  guarded([&] { call->pack(w, packed->data()); });
  packed->channels = call->cut().channels, packed->order = call->at(0, 0).weights();
  return packed;
}

bool conv_forward(const ConvArgs& c, const float* x, const float* w, float* y, const PackedWeights* packed) {
  if (!check(c)) return false;
  if (is_empty(c)) {
    clear(y, c.batch * c.out_channels * out_size(c));
    return true;
  }
  if (is_product(c)) {
    product_forward(c, x, w, y);
    return true;
  }
  auto call = plan(Pass::Forward, c);
  if (!call) return false;
  guarded([&] {
    const std::byte* weights = nullptr;
    if (packed && packed->channels == call->cut().channels && packed->order == call->at(0, 0).weights()) {
      weights = packed->data();
    } else {
      auto space = static_cast<std::byte*>(thread_scratch(Scratch::ConvPacked, call->packed_bytes()));
      call->pack(w, space);
      weights = space;
    }
    call->for_each([&](i64 i, i64 j) {
      call->at(i, j).run(x + call->x_offset(i, j), weights + call->packed_offset(j), y + call->y_offset(i, j));
    });
  });
  return true;
}

bool conv_backward_data(const ConvArgs& c, const float* dy, const float* w, float* dx) {
  if (!check(c)) return false;
  if (is_empty(c)) {
    clear(dx, c.batch * c.in_channels * in_size(c));
    return true;
  }
  if (is_product(c)) {
    product_backward_data(c, dy, w, dx);
    return true;
  }
  auto call = plan(Pass::Data, c);
  if (!call) return false;
  guarded([&] {
    auto weights = static_cast<std::byte*>(thread_scratch(Scratch::ConvPacked, call->packed_bytes()));
    call->pack(w, weights);
    call->for_each([&](i64 i, i64 j) {
      call->at(i, j).run(dx + call->x_offset(i, j), weights + call->packed_offset(j), dy + call->y_offset(i, j));
    });
  });
  return true;
}

bool conv_backward_weights(const ConvArgs& c, const float* x, const float* dy, float* dw) {
  if (!check(c)) return false;
  i64 size = c.out_channels * (c.in_channels / c.groups) * kernel_size(c);
  if (is_empty(c)) {
    clear(dw, size);
    return true;
  }
  if (is_product(c) && (c.batch == 1 || out_size(c) >= 256)) {  // few points and many images write dw too often
    product_backward_weights(c, x, dy, dw);
    return true;
  }
  auto call = plan(Pass::Weights, c);
  if (!call) return false;
  guarded([&] {
    i64 others = call->cut().image_blocks - 1;  // the first block of images writes to dw, the others beside it
    auto partial =
        static_cast<float*>(thread_scratch(Scratch::ConvPartial, std::size_t(others * size) * sizeof(float)));
    call->for_each([&](i64 i, i64 j) {
      float* out = i == 0 ? dw : partial + (i - 1) * size;
      call->at(i, j).run(x + call->x_offset(i, j), out + call->w_offset(j), dy + call->y_offset(i, j));
    });
    if (others > 0)
      parallel_for(size, 1 << 14, [&](i64 begin, i64 end) {
        for (i64 i = 0; i < others; ++i)
          for (i64 e = begin; e < end; ++e) dw[e] += partial[i * size + e];
      });
  });
  return true;
}

}  // namespace rlx::cpu
