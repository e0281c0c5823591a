// hoccl-run starts the ranks of one job on this machine and ends them all. Plain POSIX; knows nothing of the library
// but the names of the variables it sets. One thread: signals, output and deadlines meet in one poll.
//
// Each rank leads a process group of its own, so that ending a rank takes the processes along that it started. A rank's
// group is signalled only while the rank is running or not yet reaped, when its number can belong to nobody else. What
// a rank leaves behind in its group is killed when the rank ends.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSecondLook = std::chrono::milliseconds(300);  // for the cause of a rank's failure
constexpr auto kGrace = std::chrono::seconds(2);              // between SIGTERM and SIGKILL
constexpr std::size_t kLongestLine = std::size_t{1} << 20;    // longer lines are broken, so that memory stays bounded
constexpr int kTimedOut = 124;                                // as timeout(1)
constexpr int kCannotRun = 126;                               // as a shell
constexpr int kNotFound = 127;

// What tools/cluster has set up: the process that holds each node's namespaces, and the address of node 0.
struct Cluster {
  std::vector<std::string> holders;  // by node: a process number
  std::string first_address;
};

struct Options {
  int ranks = 0;
  int nodes = 0;  // 0: this machine as it is
  double timeout_s = 0;
  bool tag = false;
  std::optional<Cluster> cluster;
  std::vector<std::string> command;
};

[[noreturn]] void stop(int status, const std::string& text) {
  std::fprintf(stderr, "hoccl-run: %s\n", text.c_str());
  std::exit(status);
}

std::string errno_words() { return std::string(std::strerror(errno)) + " (errno " + std::to_string(errno) + ")"; }

// A TCP port of 127.0.0.1 that nobody else is given while the job runs: bound, never listening. Rank 0 can listen on
// it because both sockets set SO_REUSEADDR.
class ReservedPort {
 public:
  ReservedPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (fd_ < 0 || setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
        bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      stop(1, "cannot reserve a TCP port on 127.0.0.1 for the ranks to meet at: " + errno_words());
    number_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { close(fd_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int number() const { return number_; }

 private:
  int fd_;
  int number_ = 0;
};

// Lines of one output of one rank, each with "[rank] " before it.
class TaggedOutput {
 public:
  TaggedOutput(int from, int to, int rank) : from_(from), to_(to), tag_("[" + std::to_string(rank) + "] ") {}

  int fd() const { return from_; }

  // Passes on what is there without waiting for more. False: our own output is gone.
  bool pump() {
    char bytes[16384];
    for (;;) {
      const ssize_t n = read(from_, bytes, sizeof bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return true;
      if (n <= 0) return finish();
      line_.append(bytes, static_cast<std::size_t>(n));
      if (!pass_lines()) return false;
    }
  }

  // The end of this output: an unfinished line gets its end.
  bool finish() {
    if (from_ < 0) return true;
    close(from_);
    from_ = -1;
    if (line_.empty()) return true;
    line_ += '\n';
    return pass_lines();
  }

 private:
  bool pass_lines() {
    std::string whole;
    std::size_t start = 0;
    for (std::size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n', start)) {
      whole.append(tag_).append(line_, start, end + 1 - start);
      start = end + 1;
    }
    line_.erase(0, start);
    if (line_.size() > kLongestLine) whole.append(tag_).append(line_).append("\n"), line_.clear();
    for (std::size_t done = 0; done < whole.size();) {
      const ssize_t n = write(to_, whole.data() + done, whole.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

  int from_;
  int to_;
  std::string tag_;
  std::string line_;
};

struct RankProcess {
  pid_t pid = -1;
  bool running = false;
};

class Job {
 public:
  Job(const Options& options, std::string program)
      : options_(options), program_(std::move(program)), launcher_(getpid()), ranks_(size_t(options.ranks)) {
    unsigned char random[8] = {};
    if (getrandom(random, sizeof random, 0) != sizeof random) stop(1, "getrandom failed: " + errno_words());
    for (unsigned char byte : random) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", byte);
      nonce_ += hex;
    }
    sigset_t watched;
    sigemptyset(&watched);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched, signal);
    sigprocmask(SIG_BLOCK, &watched, &mask_before_);
    std::signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) stop(1, "cannot watch for signals: " + errno_words());
  }
  ~Job() { close(signals_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    if (options_.timeout_s > 0)
      deadline_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_s));
    for (int rank = 0; rank < options_.ranks && !ending_; ++rank) start(rank);
    while (running() > 0) {
      wait_for_news();
      reap();
      if (running() > 0) look_at_deadlines();
    }
    for (TaggedOutput& output : outputs_)
      if (output.fd() >= 0 && output.pump()) output.finish();
    return status_;
  }

 private:
  std::vector<std::string> environment(int rank) const;
  void start(int rank);
  [[noreturn]] void become(int rank, const int* out, const int* err) const;
  void wait_for_news();
  void reap();
  void look_at_deadlines();
  void look_at_signals();
  void end_all(int status, int signal, const std::string& why);
  void signal_all(int signal) const;

  int running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running; }));
  }
  std::string names_of_running() const;

  const Options& options_;
  std::string program_;
  pid_t launcher_;
  ReservedPort port_;
  std::string nonce_;  // makes the pretended nodes of this job differ from those of any other
  sigset_t mask_before_{};
  int signals_ = -1;
  std::vector<RankProcess> ranks_;
  std::vector<TaggedOutput> outputs_;
  int status_ = 0;
  bool ending_ = false;
  // A rank that ended with a status. When another is killed, its peers see its sockets close, and may end, before it is
  // dead to its parent: so a death by signal that shows up soon after is the cause, and the status its consequence.
  struct Failure {
    int status;
    std::string why;
    Clock::time_point until;
  };
  std::optional<Failure> failure_;
  std::optional<Clock::time_point> deadline_;  // of the job; once it is ending, of the grace
};

std::vector<std::string> Job::environment(int rank) const {
  const int per_node = options_.nodes > 0 ? options_.ranks / options_.nodes : options_.ranks;
  const std::string port = std::to_string(port_.number());
  const std::string address = options_.cluster ? options_.cluster->first_address : "127.0.0.1";
  std::map<std::string, std::string> set = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(options_.ranks)},
      {"LOCAL_RANK", std::to_string(rank % per_node)},
      {"LOCAL_WORLD_SIZE", std::to_string(per_node)},
      {"MASTER_ADDR", address},
      {"MASTER_PORT", port},
      {"HOCCL_ID", address + ":" + port},
  };
  if (options_.nodes > 0 && !options_.cluster) set["HOCCL_HOSTID"] = nonce_ + "-node" + std::to_string(rank / per_node);
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (set.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : set) all.push_back(name + "=" + value);
  return all;
}

// In the new process, which has one thread as the launcher has.
void Job::become(int rank, const int* out, const int* err) const {
  setpgid(0, 0);
  // The rank dies with the launcher; if that died before prctl, nobody would tell us.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher_) _exit(kCannotRun);
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  // A rank is no terminal's foreground process: reading from a terminal would stop it.
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (options_.tag) dup2(out[1], STDOUT_FILENO), dup2(err[1], STDERR_FILENO);

  std::vector<std::string> variables = environment(rank);
  std::vector<std::string> command = options_.command;
  std::string program = program_;
  if (options_.cluster) {
    // nsenter forks to enter the process namespace; that child must not outlive it.
    const int node = rank / (options_.ranks / options_.nodes);
    std::vector<std::string> enter = {"nsenter", "-t",      options_.cluster->holders[size_t(node)],
                                      "-n",      "-u",      "-i",
                                      "-m",      "-p",      "-w.",
                                      "--",      "setpriv", "--pdeathsig",
                                      "KILL",    "--"};
    command.front() = program_;
    enter.insert(enter.end(), command.begin(), command.end());
    command = enter;
    program = "/usr/bin/nsenter";
  }
  std::vector<char*> argv, envp;
  for (std::string& text : command) argv.push_back(text.data());
  for (std::string& text : variables) envp.push_back(text.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  execve(program.c_str(), argv.data(), envp.data());
  std::fprintf(stderr, "hoccl-run: rank %d cannot run %s: %s\n", rank, program.c_str(), errno_words().c_str());
  _exit(kCannotRun);
}

void Job::start(int rank) {
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  if (options_.tag && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0))
    return end_all(1, SIGTERM, "cannot make a pipe for rank " + std::to_string(rank) + ": " + errno_words());
  const pid_t pid = fork();
  if (pid < 0) return end_all(1, SIGTERM, "cannot start rank " + std::to_string(rank) + ": " + errno_words());
  if (pid == 0) become(rank, out, err);
  setpgid(pid, pid);  // both sides do it, so that the group exists whoever is first
  ranks_[size_t(rank)] = {pid, true};
  if (!options_.tag) return;
  close(out[1]), close(err[1]);
  for (int fd : {out[0], err[0]}) fcntl(fd, F_SETFL, O_NONBLOCK);
  outputs_.emplace_back(out[0], STDOUT_FILENO, rank);
  outputs_.emplace_back(err[0], STDERR_FILENO, rank);
}

void Job::wait_for_news() {
  std::vector<pollfd> watch = {{signals_, POLLIN, 0}};
  std::vector<TaggedOutput*> owners = {nullptr};
  for (TaggedOutput& output : outputs_)
    if (output.fd() >= 0) watch.push_back({output.fd(), POLLIN, 0}), owners.push_back(&output);
  std::optional<Clock::time_point> until = deadline_;
  if (failure_ && !ending_ && (!until || failure_->until < *until)) until = failure_->until;
  int wait_ms = -1;
  if (until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    wait_ms = static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
  }
  if (poll(watch.data(), watch.size(), wait_ms) <= 0) return;
  for (std::size_t i = 1; i < watch.size(); ++i)
    if (watch[i].revents != 0 && !owners[i]->pump())
      end_all(128 + SIGPIPE, SIGTERM, "cannot pass on the ranks' output: " + errno_words());
  if (watch[0].revents != 0) look_at_signals();
}

void Job::look_at_signals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // reap() looks
    if (ending_)
      signal_all(SIGKILL);  // asked twice
    else
      end_all(128 + signal, signal, "got " + std::string(strsignal(signal)) + ", passing it on to all ranks");
  }
}

void Job::reap() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankProcess& process = ranks_[rank];
    siginfo_t info{};
    if (!process.running || waitid(P_PID, id_t(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) continue;
    if (info.si_pid == 0) continue;
    kill(-process.pid, SIGKILL);  // what it left behind; the number is still its own, since it is not reaped yet
    int ended = 0;
    while (waitpid(process.pid, &ended, 0) < 0 && errno == EINTR) continue;
    process.running = false;
    const bool by_signal = WIFSIGNALED(ended);
    const int number = by_signal ? WTERMSIG(ended) : WEXITSTATUS(ended);
    if (ending_ || ended == 0) continue;
    const std::string how = by_signal
                                ? "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")"
                                : "ended with status " + std::to_string(number);
    const std::string why = "rank " + std::to_string(rank) + " (pid " + std::to_string(process.pid) + ") " + how;
    if (by_signal)
      end_all(128 + number, SIGTERM, why);
    else if (!failure_)
      failure_ = Failure{number, why, Clock::now() + kSecondLook};
  }
  if (failure_ && (running() == 0 || Clock::now() >= failure_->until))
    end_all(failure_->status, SIGTERM, failure_->why);
}

void Job::look_at_deadlines() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  if (ending_) {
    std::fprintf(stderr, "hoccl-run: killing %s, still there after %d s\n", names_of_running().c_str(),
                 static_cast<int>(kGrace.count()));
    signal_all(SIGKILL);
    deadline_.reset();  // nothing survives SIGKILL; only the news of it is waited for
    return;
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", options_.timeout_s);
  end_all(kTimedOut, SIGTERM, std::string("time is up after ") + seconds + " s; still running: " + names_of_running());
}

// Keeps the status and the text of the first reason; later ones are consequences.
void Job::end_all(int status, int signal, const std::string& why) {
  if (ending_) return;
  ending_ = true;
  status_ = status;
  const int others = running();
  const std::string rest = others > 0 ? "; ending " + std::to_string(others) + " running" : "";
  std::fprintf(stderr, "hoccl-run: %s%s\n", why.c_str(), rest.c_str());
  signal_all(signal);
  deadline_ = Clock::now() + kGrace;
}

void Job::signal_all(int signal) const {
  for (const RankProcess& process : ranks_)
    if (process.running) kill(-process.pid, signal);
}

std::string Job::names_of_running() const {
  std::string names;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].running) names += (names.empty() ? "rank " : ", ") + std::to_string(rank);
  return names;
}

bool can_execute(const std::string& path) {
  std::error_code ignored;
  return access(path.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(path, ignored);
}

// PROGRAM as the shell finds it, then beside this program.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) != 0) stop(kNotFound, "program " + name + " not found: " + errno_words());
    if (!can_execute(name)) stop(kCannotRun, "program " + name + " is there, but is no file that may be executed");
    return name;
  }
  std::vector<std::string> folders;
  const char* path = std::getenv("PATH");
  const std::string list = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t end = std::min(list.find(':', start), list.size());
    folders.push_back(end > start ? list.substr(start, end - start) : ".");
    start = end + 1;
  }
  std::error_code ignored;
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
  folders.push_back(beside);
  for (const std::string& folder : folders)
    if (can_execute(folder + "/" + name)) return folder + "/" + name;
  stop(kNotFound, "program " + name + " not found: neither in the folders of PATH (" + list + ") nor in " + beside);
}

constexpr double kShortest_s = 0.001, kLongest_s = 1e6;  // of --timeout

// Empty when `text` is a time that --timeout can take. Says no to "nan" and "inf", which are numbers to strtod.
std::string refusal_of_timeout(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (number && seconds >= kShortest_s && seconds <= kLongest_s) return "";
  return "'" + text + "' is not a time: give seconds from 0.001 to 1000000; without the option there is no limit";
}

// The command line as CLI11 wants it, last word first. MPI's -np, before PROGRAM, becomes -n.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < words.size() && words[i].size() > 1 && words[i][0] == '-' && words[i] != "--"; ++i) {
    if (words[i].rfind("-np", 0) == 0) words[i].erase(2, 1);
    for (const char* name : {"-n", "--ranks", "--nodes", "--timeout"})
      if (words[i] == name) {
        ++i;  // its value
        break;
      }
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// Reads what tools/cluster left in its folder; stops with what to do when there is no cluster.
Cluster read_cluster(int& nodes) {
  const char* const named = std::getenv("HOCCL_CLUSTER");
  const std::string folder = named != nullptr ? named : "/run/hoccl-cluster";
  std::ifstream file(folder + "/conf");
  if (!file) stop(2, "--cluster: no cluster in " + folder + "; set one up with: tools/cluster up NODES [NICS [RATE]]");
  std::map<std::string, std::string> conf;
  for (std::string line; std::getline(file, line);)
    if (const auto equals = line.find('='); equals != std::string::npos)
      conf[line.substr(0, equals)] = line.substr(equals + 1);
  const int there = std::atoi(conf["nodes"].c_str());
  if (nodes == 0) nodes = there;
  if (nodes > there)
    stop(2, "--nodes " + std::to_string(nodes) + ": the cluster in " + folder + " has only " + std::to_string(there));
  Cluster cluster{{}, conf["net"] + ".0.1"};
  for (int node = 0; node < nodes; ++node) {
    std::ifstream holder(folder + "/node" + std::to_string(node) + ".pid");
    std::string pid;
    if (!(holder >> pid)) stop(2, "--cluster: node " + std::to_string(node) + " is not up; see tools/cluster status");
    cluster.holders.push_back(pid);
  }
  return cluster;
}

constexpr const char* kExamples = R"(Examples:
  hoccl-run -n 8 --nodes 2 all_reduce_perf -b 8 -e 64M -f 2
                                 8 ranks on 2 pretended nodes of 4: no shared memory between the nodes
  hoccl-run -n 8 --cluster all_reduce_perf -b 16M -e 16M --schedule ring,ho_ring
                                 on the nodes that tools/cluster has set up, with their shaped links (root)
  hoccl-run -n 4 --tag env       each line of output says which rank it is from
  hoccl-run -n 4 --timeout 60 ./my_program --its-own-options

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, HOCCL_ID and, with --nodes,
HOCCL_HOSTID. Its input is empty. It leads a process group of its own, which ends with it.
Status: 0 when all ranks return 0; otherwise that of the first rank that failed (128 + signal when a signal killed it);
124 when time is up; 126 or 127 when PROGRAM cannot be run or found; 2 for wrong usage.)";

struct Formatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: hoccl-run -n N [--nodes K] [--cluster] [--timeout S] [--tag] PROGRAM [args...]\n";
  }
};

Options read_options(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Starts the ranks of one job on this machine, and ends all of them when one fails.\n"
      "PROGRAM is looked for in PATH, then beside hoccl-run. Options after PROGRAM belong to PROGRAM.");
  app.name("hoccl-run");
  app.formatter(std::make_shared<Formatter>());
  app.footer(kExamples);
  app.add_option("-n,--ranks", options.ranks, "number of ranks; -np N is the same")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option("--nodes", options.nodes, "pretend that the ranks are on this many nodes, equally many on each")
      ->check(CLI::Range(1, 4096));
  bool cluster = false;
  app.add_flag("--cluster", cluster, "run on the nodes of tools/cluster (all of them, or the first K of --nodes K)");
  app.add_option("--timeout", options.timeout_s, "end everything after this many seconds, with status 124")
      ->type_name("SECONDS")
      ->check(refusal_of_timeout);
  app.add_flag("--tag", options.tag, "put \"[rank] \" before each line; lines of ranks never mix");
  app.prefix_command();
  try {
    app.parse(words_of(argc, argv));
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    stop(2, std::string(error.what()) + "; hoccl-run -h shows the options");
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
  if (options.command.empty()) stop(2, "no PROGRAM given; hoccl-run -h shows the options");
  if (options.command.front().front() == '-')
    stop(2, "unknown option " + options.command.front() + "; hoccl-run -h shows the options");
  if (cluster) options.cluster = read_cluster(options.nodes);
  if (options.nodes > 0 && options.ranks % options.nodes != 0)
    stop(2, std::to_string(options.ranks) + " ranks cannot be spread evenly over " + std::to_string(options.nodes) +
                " nodes: give a number of ranks (-n) that is a multiple of the number of nodes (--nodes)");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  Job job(options, find_program(options.command.front()));
  return job.run();
}
