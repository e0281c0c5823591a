// Links are a consequence of plans: only those that a plan's channels name are opened, when the plan is first needed.
// All ranks need it at the same call, so wiring is collective: every side says hello, the bootstrap swaps the hellos,
// every side meets.
#include <thread>

#include "src/base/log.hpp"
#include "src/comm/communicator.hpp"

namespace hoccl {

Communicator::LinkKey Communicator::key_of(const Channel& channel, bool outgoing) {
  return {index(channel.peer), channel.label, outgoing, channel.credits};
}

// The first transport in the order of preference that reaches the peer; both ends find the same.
std::size_t Communicator::transport_to(Rank peer) const {
  const auto& mine = peers_[static_cast<std::size_t>(index(rank()))].profiles;
  const auto& theirs = peers_[static_cast<std::size_t>(index(peer))].profiles;
  std::string reasons;
  for (std::size_t t = 0; t < transports_.size(); ++t) {
    const std::string name(transports_[t]->name());
    const Reach reach = transports_[t]->reach(mine.at(name), theirs.at(name));
    if (reach.yes) return t;
    reasons += fmt::format("; {}: {}", name, reach.reason);
  }
  fail(Code::system, "rank {} cannot reach rank {} by any transport that HOCCL_TRANSPORTS allows{}", index(rank()),
       index(peer), reasons);
}

void Communicator::open(const Channel& channel, bool outgoing, std::vector<std::pair<LinkKey, OpenLink>>& fresh) {
  const LinkKey key = key_of(channel, outgoing);
  if (links_.contains(key)) return;
  Transport& transport = *transports_[transport_to(channel.peer)];
  const Blob& theirs = peers_[static_cast<std::size_t>(index(channel.peer))].profiles.at(std::string(transport.name()));
  const LinkSpec spec{channel.peer, static_cast<int>(channel.label) * 64 + channel.credits, kSlot, channel.credits,
                      channel.width};
  OpenLink link{std::string(transport.name()), nullptr, nullptr};
  if (outgoing)
    link.send = transport.open_send(spec, theirs);
  else
    link.receive = transport.open_receive(spec, theirs);
  log::info("wiring", "{} rank {}: {} by {}", outgoing ? "to" : "from", index(channel.peer), name_of(channel.label),
            transport.name());
  fresh.emplace_back(key, std::move(link));
}

// A hello carries what names the link on both ends: the label, the credits and which side is talking.
void Communicator::wire(const Program& program) {
  std::vector<std::pair<LinkKey, OpenLink>> fresh;
  for (const Channel& channel : program.takes) open(channel, false, fresh);
  for (const Channel& channel : program.gives) open(channel, true, fresh);

  std::vector<Message> hellos;
  for (auto& [key, link] : fresh) {
    const auto& [peer, label, outgoing, credits] = key;
    Writer w;
    w.put(label).put(outgoing).put(credits).put_bytes(link.link().hello());
    hellos.emplace_back(static_cast<Rank>(peer), w.take());
  }
  std::map<LinkKey, Blob> answers;
  for (const auto& [from, blob] : bootstrap_->swap(std::move(hellos))) {
    Reader r(blob);
    const auto label = r.get<Label>();
    const bool outgoing = r.get<bool>();
    const int credits = r.get<int>();
    answers[{index(from), label, !outgoing, credits}] = r.get_bytes();
  }
  const auto deadline = std::chrono::steady_clock::now() + config_.start_timeout;
  std::vector<bool> met(fresh.size(), false);
  for (std::size_t left = fresh.size(); left > 0;) {
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      const auto& [key, link] = fresh[i];
      const auto answer = answers.find(key);
      require(answer != answers.end(), Code::remote,
              "rank {} did not open its end of a link to rank {}: the ranks call different collectives",
              std::get<0>(key), index(rank()));
      if (met[i] || !link.link().meet(answer->second)) continue;
      met[i] = true;
      --left;
    }
    if (left == 0) break;
    look_around();
    ensure_well();
    require(std::chrono::steady_clock::now() < deadline, Code::remote,
            "rank {} could not connect {} of {} links within {} s (HOCCL_START_TIMEOUT)", index(rank()), left,
            fresh.size(), static_cast<double>(config_.start_timeout.count()) / 1000);
    bool moved = false;
    for (const auto& transport : transports_) moved |= transport->poll();
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (auto& [key, link] : fresh) links_.emplace(key, std::move(link));
}

}  // namespace hoccl
