// The meeting of all ranks of one unique id: who comes says where it listens, and when all are there each learns where
// its parent in the tree is. Read next: tcp.cpp, which builds the tree.
#pragma once

#include <cstdint>

#include "src/base/socket.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/bootstrap/handshake.hpp"

namespace hoccl {

// Neighbours in the tree: ranks are numbered like a heap in which each has up to this many children.
constexpr int kFanOut = 8;
constexpr int parent_of(int rank) { return (rank - 1) / kFanOut; }
constexpr int first_child_of(int rank) { return rank * kFanOut + 1; }

// Serves the meeting in a thread of its own, which ends when all ranks have met, or some time after it had to tell them
// that they cannot. Nobody waits for the thread: it owns all that it touches, so that the process may end at any
// moment. `inside`, when valid, is the connection of a rank of this process.
void serve_rendezvous(Socket listener, std::uint64_t nonce, Socket inside);

// After the welcome: where the parent is (nowhere for rank 0). Throws Error with the rendezvous' verdict, or when it
// says nothing by `limit` (patience as told in the hello, for the text).
Contact await_parent(Socket& socket, const Hello& hello, TimePoint limit);

}  // namespace hoccl
