// Values of the lowest floor: amounts with units, the tables of types, bytes for the wire, addresses, sizes.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <limits>
#include <set>
#include <string>

#include "src/base/bytes.hpp"
#include "src/base/config.hpp"
#include "src/base/error.hpp"
#include "src/base/socket.hpp"
#include "src/base/types.hpp"

using namespace hoccl;

namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};

void wait_for(const Socket& socket, short events) {
  pollfd state{socket.fd(), events, 0};
  REQUIRE(poll(&state, 1, 5000) == 1);
}

}  // namespace

TEST_CASE("amounts of one unit add and compare, amounts of two units do not") {
  CHECK(Count(2) + Count(3) == Count(5));
  CHECK(Bytes(7) - Bytes(9) == Bytes(-2));
  CHECK(Bytes(3) * 4 == Bytes(12));
  CHECK(Bytes(3) < Bytes(4));
  Bytes sum(1);
  sum += Bytes(2);
  CHECK(sum == Bytes(3));
  static_assert(Addable<Count, Count> && !Addable<Count, Bytes> && !Addable<Rank, Rank>);
  static_assert(Comparable<Bytes, Bytes> && !Comparable<Bytes, Count>);
  static_assert(!std::is_convertible_v<int, Count>);
  CHECK(bytes_of(Count(5), Type::float64) == Bytes(40));
  CHECK(bytes_of(Count(3'000'000'000), Type::int32) == Bytes(12'000'000'000));
}

TEST_CASE("the tables of types and reductions are in the order of their numbers") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    CHECK(static_cast<std::size_t>(kTypes[i].type) == i);
    CHECK(type_named(kTypes[i].name) == kTypes[i].type);
    names.insert(kTypes[i].name);
  }
  CHECK(names.size() == 12);
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    CHECK(static_cast<std::size_t>(kOps[i].op) == i);
    CHECK(op_named(kOps[i].name) == kOps[i].op);
  }
  CHECK_FALSE(type_named("quad").has_value());
  CHECK_FALSE(op_named("xor").has_value());
  CHECK(row(Type::float32).digits == std::numeric_limits<float>::digits);
  CHECK(row(Type::float64).digits == std::numeric_limits<double>::digits);
  CHECK(row(Type::int64).digits == std::numeric_limits<std::int64_t>::digits);
  CHECK(row(Type::uint8).digits == std::numeric_limits<std::uint8_t>::digits);
}

TEST_CASE("a reader gives back what a writer wrote") {
  const Blob inner{std::byte{1}, std::byte{2}};
  const Blob blob = Writer().put(std::int32_t{-5}).put_text("ring").put(3.5).put_bytes(inner).put_text("").take();
  CHECK(blob.size() == 4 + 4 + 4 + 8 + 4 + 2 + 4);
  Reader reader(blob);
  CHECK(reader.get<std::int32_t>() == -5);
  CHECK(reader.get_text() == "ring");
  CHECK(reader.get<double>() == 3.5);
  CHECK(reader.get_bytes() == inner);
  CHECK_FALSE(reader.done());
  CHECK(reader.get_text().empty());
  CHECK(reader.done());
}

TEST_CASE("a message that ends too early is an error at every length") {
  const Blob blob = Writer().put(std::int32_t{7}).put_text("seven").take();
  for (std::size_t length = 0; length < blob.size(); ++length) {
    Reader reader{std::span<const std::byte>(blob).first(length)};
    CHECK_THROWS_AS((reader.get<std::int32_t>(), reader.get_text()), Error);
  }
  const Blob lying = Writer().put(std::uint32_t{0xffffffff}).take();
  CHECK_THROWS_WITH(Reader(lying).get_bytes(), "a message from another rank ends 4294967295 bytes too early");
}

TEST_CASE("hashes tell texts apart") {
  CHECK(hash_text("") == kHashSeed);
  CHECK(hash_text("a") == 0xaf63dc4c8601ec8cULL);  // from the definition of FNV-1a
  CHECK(hash_text("ab") != hash_text("ba"));
}

TEST_CASE("sizes are read with binary suffixes") {
  CHECK(parse_size("8", "size") == 8);
  CHECK(parse_size("0", "size") == 0);
  CHECK(parse_size("64K", "size") == 65536);
  CHECK(parse_size("1.5M", "size") == 1572864);
  CHECK(parse_size("2g", "size") == 2147483648LL);
  CHECK(parse_size("1T", "size") == 1099511627776LL);
  CHECK(parse_size("9007199254740993", "size") == 9007199254740993LL);
  CHECK(parse_size("0.3k", "size") == 307);
  for (const char* bad :
       {"", "K", "-1", "1.5", "8Q", "8KB", "1e3", "nan", "9999999999G", "99999999999999999999", "0x10"}) {
    INFO(bad);
    CHECK_THROWS_WITH(parse_size(bad, "option -b"), "option -b \"" + std::string(bad) +
                                                        "\": expected a number, with K, M, G or T for powers of 1024");
  }
}

TEST_CASE("addresses are printed as they are read") {
  for (const char* text : {"127.0.0.1:80", "[::1]:80", "[fd00::2]:65535", "10.0.0.1:0", "[fe80::1%lo]:7"}) {
    const auto address = Address::parse(text);
    REQUIRE(address.has_value());
    CHECK(address->text() == text);
    sockaddr_storage storage;
    address->store(&storage);
    CHECK(Address::from(&storage) == *address);
  }
  for (const char* bad :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "1.2.3:4", "::1:80", "[::1]", "[::1:80",
        "[]:80", "localhost:80", "[127.0.0.1]:80", "[fe80::1%nosuch]:7", "127.0.0.1:8x"}) {
    INFO(bad);
    CHECK_FALSE(Address::parse(bad).has_value());
  }
  CHECK(Address().text() == "none");
  CHECK_FALSE(Address());
  CHECK(Address::parse("127.9.9.9:1")->is_loopback());
  CHECK(Address::parse("[::1]:1")->is_loopback());
  CHECK_FALSE(Address::parse("[fd00::1]:1")->is_loopback());
  CHECK(Address::parse("[fe80::1]:1")->is_link_local());
  CHECK(Address::parse("169.254.3.4:1")->is_link_local());
  CHECK(Address::parse("127.0.0.1:1")->with_port(9) == *Address::parse("127.0.0.1:9"));
  CHECK_THROWS_WITH(Address::resolve("nonsense"),
                    "\"nonsense\" is no address: expected host:port, a.b.c.d:port or [ipv6]:port");
}

TEST_CASE("the loopback interface is among this host's interfaces") {
  bool found = false;
  for (const Interface& interface : interfaces()) {
    CHECK(interface.address.port() == 0);
    if (interface.address.is_loopback()) found = interface.loopback;
  }
  CHECK(found);
  CHECK(network_identity() == network_identity());
}

TEST_CASE("a stream carries bytes both ways, blocks when there are none and ends in order") {
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6) {  // a machine without IPv6 has nothing to test
      const auto all = interfaces();
      if (std::none_of(all.begin(), all.end(), [](const Interface& i) { return i.address.family() == AF_INET6; }))
        continue;
    }
    Socket door = Socket::listen(Address::loopback(family, 0));
    int error = 0;
    CHECK_FALSE(door.accept(error).valid());
    CHECK(error == 0);
    Socket one = Socket::start_connect(door.local());
    wait_for(one, POLLOUT);
    REQUIRE(one.finish_connect(error));
    CHECK(error == 0);
    wait_for(door, POLLIN);
    Socket two = door.accept(error);
    REQUIRE(two.valid());
    CHECK(two.remote() == one.local());

    std::byte in[8] = {};
    CHECK(two.read_some(std::span(in)).outcome == Progress::Outcome::blocked);
    const std::byte out[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
    const Progress wrote = one.write_some(std::span<const std::byte>(out));
    CHECK(wrote.outcome == Progress::Outcome::moved);
    CHECK(wrote.bytes == 3);
    wait_for(two, POLLIN);
    iovec parts[2] = {{in, 1}, {in + 4, 4}};
    const Progress read = two.read_some(std::span<const iovec>(parts));
    CHECK(read.bytes == 3);
    CHECK(in[0] == std::byte{1});
    CHECK(in[4] == std::byte{2});
    CHECK(in[5] == std::byte{3});
    one.shut_write();
    wait_for(two, POLLIN);
    CHECK(two.read_some(std::span(in)).outcome == Progress::Outcome::closed);
  }
}

TEST_CASE("connecting where nobody listens is refused, and a dead stream says closed") {
  Socket door = Socket::listen(Address::loopback(AF_INET, 0));
  const Address address = door.local();
  Socket one = Socket::start_connect(address);
  wait_for(one, POLLOUT);
  door.close();  // with the connection waiting in it: a reset
  std::byte in[4];
  wait_for(one, POLLIN);
  CHECK(one.read_some(std::span(in)).outcome == Progress::Outcome::closed);

  Socket two = Socket::start_connect(address);
  int error = 0;
  for (int i = 0; i < 100 && !two.finish_connect(error); ++i) poll(nullptr, 0, 10);
  CHECK(error == ECONNREFUSED);
}

TEST_CASE("two sockets share a port when both agree to it") {
  Socket one = Socket::listen(Address::loopback(AF_INET, 0), true);
  Socket two = Socket::listen(one.local(), true);
  CHECK(two.local() == one.local());
  CHECK_THROWS_WITH(Socket::listen(one.local()),
                    Catch::Contains("bind a socket to 127.0.0.1:") && Catch::Contains("Address already in use"));
}
