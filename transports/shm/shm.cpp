// Links between processes (or threads) of one machine that are on one node: messages by value, through one Segment per
// link. The receive end makes it, the send end opens it and says so in the segment; then the receive end closes the
// descriptor, so that a rank holds descriptors by peer and not by link. Nothing has a name, so nothing is left behind.
// Assumes: the transport outlives its links. Read next: src/base/queue.hpp, src/base/segment.hpp.
#include <memory>
#include <optional>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "src/base/peer_bells.hpp"
#include "src/base/queue.hpp"
#include "src/base/segment.hpp"
#include "transports/transport.hpp"

namespace hoccl {

std::unique_ptr<Transport> make_shm(const TransportContext& context);

namespace {

// First in the segment, before the slots.
struct Front {
  QueueEnd end;
  alignas(kCacheLine) std::uint32_t opened;  // 1 when the send end has mapped the segment; written by it
};

// Head and payload of a slot lie side by side: a small message is one page and two neighbouring lines.
std::size_t slot_stride(const LinkSpec& spec) { return sizeof(SlotHead) + whole_lines(size_of(spec.slot)); }

Bytes segment_bytes(const LinkSpec& spec) {
  return Bytes(static_cast<std::int64_t>(sizeof(Front) + static_cast<std::size_t>(spec.credits) * slot_stride(spec)));
}

Front& front_of(const Segment& segment) { return *static_cast<Front*>(segment.data()); }

QueueLayout layout_of(const Segment& segment, const LinkSpec& spec) {
  auto* const slots = static_cast<std::byte*>(segment.data()) + sizeof(Front);
  const std::size_t stride = slot_stride(spec);
  return QueueLayout{&front_of(segment).end,   slots,  stride,
                     slots + sizeof(SlotHead), stride, static_cast<std::uint32_t>(spec.credits)};
}

class ShmSend final : public SendLink {
 public:
  ShmSend(const LinkSpec& spec, RemoteBell& bell) : spec_(spec), bell_(bell) {}

  Blob hello() override { return {}; }
  bool meet(std::span<const std::byte> theirs) override {
    if (segment_) return true;
    segment_.emplace(theirs);
    require(segment_->bytes() == segment_bytes(spec_), Code::internal,
            "linking to rank {} by shared memory: its end has {} bytes where this end expects {}", index(spec_.peer),
            segment_->bytes().value, segment_bytes(spec_).value);
    producer_ = QueueProducer(layout_of(*segment_, spec_));
    // release: nothing but the word itself is passed on; partner: the acquire in ShmReceive::meet().
    std::atomic_ref(front_of(*segment_).opened).store(1, std::memory_order_release);
    bell_.ring();
    return true;
  }
  std::string route() const override { return "shm"; }

  std::byte* reserve() noexcept override { return producer_.has_credit() ? producer_.slot() : nullptr; }
  void commit(Bytes bytes, std::uint32_t tag) noexcept override {
    producer_.commit(nullptr, bytes, tag);
    count(bytes);
    bell_.ring();
  }
  bool drained() noexcept override { return true; }

 private:
  LinkSpec spec_;
  RemoteBell& bell_;
  std::optional<Segment> segment_;
  QueueProducer producer_{QueueLayout{}};
};

class ShmReceive final : public ReceiveLink {
 public:
  ShmReceive(const LinkSpec& spec, RemoteBell& bell)
      : bell_(bell), segment_(segment_bytes(spec)), consumer_(layout_of(segment_, spec)) {}

  Blob hello() override { return segment_.address(); }
  bool meet(std::span<const std::byte>) override {
    // acquire; partner: the release in ShmSend::meet().
    if (std::atomic_ref(front_of(segment_).opened).load(std::memory_order_acquire) == 0) return false;
    segment_.close_fd();
    return true;
  }
  std::string route() const override { return "shm"; }

  const Slot* front() noexcept override {
    if (!consumer_.has_message()) return nullptr;
    const SlotHead& head = consumer_.head();
    front_ = Slot{consumer_.slot(), Bytes(head.bytes), head.tag};
    return &front_;
  }
  void release() noexcept override {
    count(Bytes(consumer_.head().bytes));
    consumer_.release();
    bell_.ring();
  }

 private:
  RemoteBell& bell_;
  Segment segment_;
  QueueConsumer consumer_;
  Slot front_;
};

struct Profile {
  std::string host_id, machine;
  Blob bell;

  static Profile read(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    Profile p;
    p.host_id = reader.get_text();
    p.machine = reader.get_text();
    p.bell = reader.get_bytes();
    return p;
  }
};

class Shm final : public Transport {
 public:
  explicit Shm(const TransportContext& context) : context_(context) {}

  std::string_view name() const noexcept override { return "shm"; }
  Blob profile() override {
    return Writer().put_text(context_.host_id).put_text(context_.machine).put_bytes(context_.bell->address()).take();
  }
  Reach reach(std::span<const std::byte> mine, std::span<const std::byte> theirs) const override {
    const Profile a = Profile::read(mine), b = Profile::read(theirs);
    const auto no = [](std::string reason) { return Reach{false, std::move(reason), 0, 0}; };
    if (a.machine != b.machine) return no("the ranks run on different machines, or in different pid namespaces of one");
    if (a.host_id != b.host_id) return no("the ranks are on different nodes (their host identities differ)");
    return Reach{true, {}, 0.5, 5};  // expected, for choosing: a few cache misses; one copy in, one read out
  }
  std::unique_ptr<SendLink> open_send(const LinkSpec& spec, std::span<const std::byte> theirs) override {
    return std::make_unique<ShmSend>(spec, bells_.at(Profile::read(theirs).bell));
  }
  std::unique_ptr<ReceiveLink> open_receive(const LinkSpec& spec, std::span<const std::byte> theirs) override {
    return std::make_unique<ShmReceive>(spec, bells_.at(Profile::read(theirs).bell));
  }

 private:
  TransportContext context_;
  PeerBells bells_;
};

}  // namespace

std::unique_ptr<Transport> make_shm(const TransportContext& context) { return std::make_unique<Shm>(context); }

}  // namespace hoccl
