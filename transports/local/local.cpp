// Links between threads of one process. A message is published by reference: the taker reads it where it lies, and
// release() is the acknowledgement. Results that have no home of their own go through slots that the queue owns.
// Assumes: the transport outlives its links. Read next: src/base/queue.hpp.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "src/base/peer_bells.hpp"
#include "src/base/queue.hpp"
#include "transports/transport.hpp"

namespace hoccl {

std::unique_ptr<Transport> make_local(const TransportContext& context);

namespace {

// Memory of one link. The heads lie together, so that a link that only publishes touches one page.
class SharedQueue {
 public:
  SharedQueue(Bytes slot, int credits) {
    const std::size_t n = static_cast<std::size_t>(credits);
    const std::size_t stride = whole_lines(std::max<std::size_t>(size_of(slot), 1));
    heads_ = std::make_unique<SlotHead[]>(n);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kCacheLine, n * stride)));
    if (!data_) fail_errno(fmt::format("allocating {} slots of {} bytes for a link between threads", n, stride));
    layout_ = QueueLayout{&end_,  reinterpret_cast<std::byte*>(heads_.get()), sizeof(SlotHead), data_.get(),
                          stride, static_cast<std::uint32_t>(credits)};
  }
  const QueueLayout& layout() const { return layout_; }

  // What is published belongs to the giver's caller, who gets it back when an operation fails. Dekker: the taker says
  // that it reads and then looks at `taken_back`; the giver sets that and then looks at `reading`. All four are
  // seq_cst, so either the taker sees that it must not begin, or the giver sees that it must wait.
  std::atomic<bool> reading{false}, taken_back{false};

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  QueueEnd end_;
  std::unique_ptr<SlotHead[]> heads_;
  std::unique_ptr<std::byte, Free> data_;
  QueueLayout layout_;
};

// Where the two ends of a link find each other. Process-wide, because the ends belong to communicators that know
// nothing of each other. The queue is a shared_ptr, because its two owners, the ends, cannot be ordered: they are
// destroyed by two threads, either first, and the send end may never come. The table itself owns nothing: the receive
// end enters its queue and takes it out again.
class MeetingTable {
 public:
  static MeetingTable& of_process() {
    static MeetingTable* const table = new MeetingTable;  // never destroyed: links may outlive static objects
    return *table;
  }
  std::uint64_t enter(const std::shared_ptr<SharedQueue>& queue) {
    const std::lock_guard lock(mutex_);
    queues_.emplace(++last_, queue);
    return last_;
  }
  void leave(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    queues_.erase(token);
  }
  // Null when the receive end is gone.
  std::shared_ptr<SharedQueue> find(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    const auto at = queues_.find(token);
    return at == queues_.end() ? nullptr : at->second.lock();
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<SharedQueue>> queues_;
};

class LocalSend final : public SendLink, private Direct {
 public:
  LocalSend(const LinkSpec& spec, RemoteBell& bell) : spec_(spec), bell_(bell) {}

  Blob hello() override { return {}; }
  bool meet(std::span<const std::byte> theirs) override {
    queue_ = MeetingTable::of_process().find(Reader(theirs).get<std::uint64_t>());
    require(queue_ != nullptr, Code::remote, "linking to rank {} in this process: its end of the link is gone already",
            index(spec_.peer));
    require(queue_->layout().credits == static_cast<std::uint32_t>(spec_.credits) &&
                queue_->layout().data_stride >= size_of(spec_.slot),
            Code::internal, "linking to rank {} in this process: the two ends disagree about the slots of the link",
            index(spec_.peer));
    producer_ = QueueProducer(queue_->layout());
    return true;
  }
  std::string route() const override { return "local"; }

  std::byte* reserve() noexcept override { return producer_.has_credit() ? producer_.slot() : nullptr; }
  void commit(Bytes bytes, std::uint32_t tag) noexcept override { give(nullptr, bytes, tag); }
  bool drained() noexcept override { return producer_.all_released(); }
  Direct* direct() noexcept override { return this; }
  bool take_back() noexcept override {
    if (!queue_) return true;
    queue_->taken_back.store(true);
    return producer_.all_released() || !queue_->reading.load();
  }

 private:
  bool ready() noexcept override { return producer_.has_credit(); }
  void publish(const void* data, Bytes bytes, std::uint32_t tag) noexcept override {
    give(static_cast<const std::byte*>(data), bytes, tag);
  }
  void give(const std::byte* place, Bytes bytes, std::uint32_t tag) noexcept {
    producer_.commit(place, bytes, tag);
    count(bytes);
    bell_.ring();
  }

  LinkSpec spec_;
  RemoteBell& bell_;
  std::shared_ptr<SharedQueue> queue_;
  QueueProducer producer_{QueueLayout{}};
};

class LocalReceive final : public ReceiveLink {
 public:
  LocalReceive(const LinkSpec& spec, RemoteBell& bell)
      : peer_(spec.peer),
        bell_(bell),
        queue_(std::make_shared<SharedQueue>(spec.slot, spec.credits)),
        token_(MeetingTable::of_process().enter(queue_)),
        consumer_(queue_->layout()) {}
  ~LocalReceive() override { MeetingTable::of_process().leave(token_); }

  Blob hello() override { return Writer().put(token_).take(); }
  bool meet(std::span<const std::byte>) override { return true; }
  std::string route() const override { return "local"; }

  const Slot* front() noexcept override {
    if (failed_ || !consumer_.has_message()) return nullptr;
    if (!reading_) queue_->reading.store(reading_ = true);
    if (queue_->taken_back.load()) {
      let_go();
      return nullptr;
    }
    const SlotHead& head = consumer_.head();
    // Takers only read; the slot's pointer is not const because other transports let the taker write there.
    front_.data = head.place != nullptr ? const_cast<std::byte*>(head.place) : consumer_.slot();
    front_.bytes = Bytes(head.bytes);
    front_.tag = head.tag;
    return &front_;
  }
  void release() noexcept override {
    count(Bytes(consumer_.head().bytes));
    consumer_.release();
    queue_->reading.store(reading_ = false);
    bell_.ring();
  }
  void let_go() noexcept override {
    failed_ = true;
    queue_->reading.store(reading_ = false);
  }
  std::string failure() const override {
    return failed_ ? fmt::format("rank {}, a thread of this process, ended its operation", index(peer_)) : "";
  }

 private:
  Rank peer_;
  RemoteBell& bell_;
  bool reading_ = false;  // what the queue's flag says
  std::shared_ptr<SharedQueue> queue_;
  std::uint64_t token_;
  QueueConsumer consumer_;
  Slot front_;
};

// Differs between processes; a fork keeps the nonce but not the process number.
std::uint64_t process_nonce() {
  static const std::uint64_t nonce = [] {
    std::random_device random;
    return static_cast<std::uint64_t>(random()) << 32 | random();
  }();
  return nonce;
}

struct Profile {
  std::int32_t pid = 0;
  std::uint64_t nonce = 0;
  std::string host_id, machine;
  Blob bell;

  static Profile read(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    Profile p;
    p.pid = reader.get<std::int32_t>();
    p.nonce = reader.get<std::uint64_t>();
    p.host_id = reader.get_text();
    p.machine = reader.get_text();
    p.bell = reader.get_bytes();
    return p;
  }
};

class Local final : public Transport {
 public:
  explicit Local(const TransportContext& context) : context_(context) {}

  std::string_view name() const noexcept override { return "local"; }
  Blob profile() override {
    return Writer()
        .put(static_cast<std::int32_t>(getpid()))
        .put(process_nonce())
        .put_text(context_.host_id)
        .put_text(context_.machine)
        .put_bytes(context_.bell->address())
        .take();
  }
  Reach reach(std::span<const std::byte> mine, std::span<const std::byte> theirs) const override {
    const Profile a = Profile::read(mine), b = Profile::read(theirs);
    const auto no = [](std::string reason) { return Reach{false, std::move(reason), 0, 0}; };
    if (a.machine != b.machine) return no("the ranks run on different machines");
    if (a.pid != b.pid || a.nonce != b.nonce) return no("the ranks are different processes");
    if (a.host_id != b.host_id) return no("the ranks are threads of one process, but on different (pretended) nodes");
    return Reach{true, {}, 0.3, 10};  // expected, for choosing: a few cache misses; one core's reading
  }
  std::unique_ptr<SendLink> open_send(const LinkSpec& spec, std::span<const std::byte> theirs) override {
    return std::make_unique<LocalSend>(spec, bells_.at(Profile::read(theirs).bell));
  }
  std::unique_ptr<ReceiveLink> open_receive(const LinkSpec& spec, std::span<const std::byte> theirs) override {
    return std::make_unique<LocalReceive>(spec, bells_.at(Profile::read(theirs).bell));
  }

 private:
  TransportContext context_;
  PeerBells bells_;
};

}  // namespace

std::unique_ptr<Transport> make_local(const TransportContext& context) { return std::make_unique<Local>(context); }

}  // namespace hoccl
