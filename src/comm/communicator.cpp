#include "src/comm/communicator.hpp"

#include <thread>

#include "src/base/log.hpp"
#include "src/plan/cut.hpp"
#include "src/verify/verify.hpp"
#include "topology/identity.hpp"

namespace hoccl {
namespace {

std::uint32_t tag_of(const Request& r, const Choice& choice, std::uint32_t operation) {
  Writer w;
  w.put(operation)
      .put(r.kind)
      .put(r.count.value)
      .put(r.type)
      .put(r.op)
      .put(choice.parts)
      .put_text(choice.schedule->name);
  const std::uint64_t hash = hash_bytes(w.take());
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

void check_transport_names(const NameFilter& allowed) {
  std::string known;
  bool any = false;
  for (const TransportRow& row : all_transports()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
    any = any || allowed.accepts(row.name);
  }
  for (const std::string& name : allowed.names) {
    bool found = false;
    for (const TransportRow& row : all_transports()) found = found || row.name == name;
    require(found, Code::invalid_argument,
            "HOCCL_TRANSPORTS (or NCCL_NET) names the transport {}, which this build does not have; there are: {}",
            name, known);
  }
  require(any, Code::invalid_argument, "HOCCL_TRANSPORTS leaves no transport; there are: {}", known);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Bootstrap> bootstrap, Config config, int device_number)
    : config_(std::move(config)),
      device_number_(device_number),
      bootstrap_(std::move(bootstrap)),
      device_(make_host_device()),
      executor_(*device_) {
  check_schedule_names(config_.schedules);
  check_transport_names(config_.transports);
  bootstrap_->set_bell(&bell_);
  greet();
  log::info("comm", "rank {} of {}: {}, kernels {}", index(rank()), size(), groups_.describe(), host_kernels());
  if (!groups_.equal()) log::info("comm", "{}: unequal nodes run the flat ring in node order", groups_.describe());
}

Communicator::~Communicator() {
  if (!aborted()) bootstrap_->leave();
  plans_.clear();
  links_.clear();
  if (scratch_ != nullptr) device_->release(scratch_, scratch_bytes_);
}

// The ranks tell each other who and where they are, what they are built from and how they are set.
void Communicator::greet() {
  const std::string machine = machine_identity(), host = host_identity(config_.host_id);
  const TransportContext context{&bell_, host, machine};
  Writer w;
  w.put_text(HOCCL_VERSION).put_text(agreed_text(config_)).put_text(machine).put_text(host);
  std::uint32_t usable = 0;
  for (const TransportRow& row : all_transports()) usable += config_.transports.accepts(row.name);
  w.put(usable);
  for (const TransportRow& row : all_transports()) {
    if (!config_.transports.accepts(row.name)) continue;
    transports_.push_back(row.make(context));
    w.put_text(row.name).put_bytes(transports_.back()->profile());
  }
  std::vector<std::string> versions, knobs, hosts;
  int neighbours = 0;
  for (const Blob& blob : bootstrap_->exchange(w.take())) {
    Reader r(blob);
    versions.push_back(r.get_text());
    knobs.push_back(r.get_text());
    neighbours += r.get_text() == machine;
    hosts.push_back(r.get_text());
    peers_.emplace_back();
    for (auto n = r.get<std::uint32_t>(); n > 0; --n) {
      std::string name = r.get_text();
      peers_.back().profiles[name] = r.get_bytes();
    }
  }
  compare(versions, knobs);
  groups_ = Groups(hosts);
  crowded_ = neighbours > static_cast<int>(std::thread::hardware_concurrency());
}

void Communicator::compare(const std::vector<std::string>& versions, const std::vector<std::string>& knobs) const {
  for (std::size_t r = 1; r < versions.size(); ++r) {
    require(versions[r] == versions[0], Code::invalid_usage, "rank 0 runs HOCCL {}, rank {} runs {}: use one version",
            versions[0], r, versions[r]);
    require(knobs[r] == knobs[0], Code::invalid_usage,
            "rank 0 and rank {} are set differently:\n{}against\n{}set them alike", r, knobs[0], knobs[r]);
  }
}

void Communicator::ensure_well() {
  if (!aborted()) [[likely]]
    return;
  fail(Code::remote, "this communicator is over: {}", bootstrap_->reason());
}

bool Communicator::prepared(const Request& request) const {
  const Choice c = choice(request);
  return plans_.contains({request.kind, c.schedule, c.parts});
}

void Communicator::prepare(const Request& request) {
  ensure_well();
  const Choice c = choice(request);
  const PlanKey key{request.kind, c.schedule, c.parts};
  if (plans_.contains(key)) return;
  try {
    bind(key);
  } catch (const Error& e) {
    // The others wait for this rank to wire; or one of them failed first, and its reason is the better one.
    listen_for_reason();
    const bool told = aborted();
    abort(fmt::format("preparing {} on rank {}: {}", name_of(request.kind), index(rank()), e.what()));
    throw Error(told ? Code::remote : e.code(), bootstrap_->reason());
  }
}

// A link that closed, or a peer that cannot be reached, says only that somebody is gone, perhaps because of a third
// rank. The bootstrap soon knows who ended first: all ranks then tell the same story.
void Communicator::listen_for_reason() {
  for (int i = 0; i < 30 && !aborted(); ++i) {
    look_around();
    if (!aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Communicator::bind(const PlanKey& key) {
  const auto& [kind, schedule, parts] = key;
  const Collective collective{kind, size()};
#ifndef NDEBUG
  if (size() <= 64) {
    const Report report = verify(whole_plan(*schedule, groups_, collective, parts), {.in_place = true});
    require(report.proved(), Code::internal, "the plan of {} does not hold:\n{}", schedule->name, report.describe());
  }
#endif
  agree_on(fmt::format("{} by {} in {} part(s)", name_of(kind), schedule->name, parts));
  BoundProgram bound{schedule->program(groups_, collective, parts, rank()), kind, parts, {}, {}};
  wire(bound.program);
  for (const Channel& channel : bound.program.takes)
    bound.takes.push_back(links_.at(key_of(channel, false)).receive.get());
  for (const Channel& channel : bound.program.gives) bound.gives.push_back(links_.at(key_of(channel, true)).send.get());
  reserve_scratch(bound.program);
  plans_.emplace(key, std::move(bound));
  log::info("comm", "{} runs {} in {} part(s), {} links are open", name_of(kind), schedule->name, parts, links_.size());
}

// All ranks must be about to wire the same plan. The same text on every rank: what rank 0 calls against the first rank
// that calls something else.
void Communicator::agree_on(const std::string& plan) {
  std::vector<Blob> all;
  try {
    all = bootstrap_->exchange(Writer().put_text(plan).take());
  } catch (const Error& e) {
    fail(e.code(), "rank {} calls {}, not all others do: {}; all ranks must make the same calls in the same order",
         index(rank()), plan, e.what());
  }
  const std::string first = Reader(all[0]).get_text();
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string other = Reader(all[r]).get_text();
    require(other == first, Code::remote, "the ranks call different things: rank 0 {}, rank {} {}", first, r, other);
  }
}

void Communicator::reserve_scratch(const Program& program) {
  const Bytes need = kSlot * program.tmp_blocks;
  if (need <= scratch_bytes_) return;
  void* bigger = device_->allocate(need);
  if (scratch_ != nullptr) device_->release(scratch_, scratch_bytes_);
  scratch_ = bigger;
  scratch_bytes_ = need;
}

void Communicator::skip(const Request&) {
  ensure_well();
  ++operation_;
}

void Communicator::start(const Request& request) {
  ensure_well();
  const Choice c = choice(request);
  const BoundProgram& bound = plans_.at({request.kind, c.schedule, c.parts});
  const Count outer = outer_count(request, size());
  const Cutting cutting = cut_outer(outer, c.parts, request.type, kSlot);
  const Count all = request.kind == Kind::all_reduce ? request.count : outer * size();
  const Cut whole(all, outer, cutting.piece, c.parts), own(outer, outer, cutting.piece, c.parts);

  Launch launch;
  launch.in = static_cast<const std::byte*>(request.in);
  launch.out = static_cast<std::byte*>(request.out);
  launch.tmp = static_cast<std::byte*>(scratch_);
  launch.slot = kSlot;
  launch.in_cut = in_is_own(request.kind) ? own : whole;
  launch.out_cut = out_is_own(request.kind) ? own : whole;
  launch.rounds = static_cast<std::uint32_t>(cutting.rounds);
  launch.reduction = {request.type, request.op, request.op == Op::avg ? 1.0 / size() : 1.0, size()};
  launch.tag = tag_of(request, c, operation_++);
  request_ = request;
  executor_.launch(bound, launch);
  running_ = true;
}

Executor::State Communicator::progress() noexcept {
  for (const auto& transport : transports_) transport->poll();
  return executor_.progress();
}

// The request under way ends: all ranks hear why, and the caller's memory is free again.
Error Communicator::over(const std::string& what) {
  if (!aborted())
    abort(fmt::format("{} number {} on rank {} {}", name_of(request_.kind), operation_, index(rank()), what));
  executor_.stop();
  return Error(Code::remote, bootstrap_->reason());
}

Error Communicator::failed() {
  const std::string own = executor_.mismatch();
  if (own.empty()) listen_for_reason();
  return over("failed: " + (own.empty() ? executor_.link_failure() : own));
}

Error Communicator::timed_out() {
  std::string peers;
  for (const Rank peer : executor_.waiting_for()) peers += fmt::format("{}{}", peers.empty() ? "" : ", ", index(peer));
  return over(fmt::format("has not moved for {} s (HOCCL_TIMEOUT) and waits for rank {}",
                          static_cast<double>(config_.timeout.count()) / 1000, peers.empty() ? "?" : peers));
}

std::optional<Rank> Communicator::waits_for_leaver() const {
  for (const Rank peer : executor_.waiting_for())
    if (bootstrap_->left(peer)) return peer;
  return std::nullopt;
}

Error Communicator::left_alone(Rank leaver) {
  return over(fmt::format("waits for rank {}, which has destroyed its communicator", index(leaver)));
}

void Communicator::abort(const std::string& reason) noexcept {
  bootstrap_->abort(reason);
  bell_.ring();
}

std::optional<Error> Communicator::async_error() {
  bootstrap_->poll();
  if (!aborted()) return std::nullopt;
  const std::lock_guard lock(error_mutex_);
  if (!error_) error_ = Error(Code::remote, bootstrap_->reason());
  return error_;
}

void Communicator::add_wait_fds(std::vector<int>& fds) const {
  fds.push_back(bootstrap_->wait_fd());
  for (const auto& transport : transports_) fds.push_back(transport->wait_fd());
}

std::vector<Communicator::LinkTraffic> Communicator::traffic() const {
  std::vector<LinkTraffic> rows;
  for (const auto& [key, open] : links_) {
    const auto& [peer, label, outgoing, credits] = key;
    const Link& link = open.link();
    rows.push_back({static_cast<Rank>(peer), outgoing, label, open.transport, link.route(), link.traffic()});
  }
  return rows;
}

}  // namespace hoccl
