# The commands a person expects. Everything else is cargo.
#
# The Makefile installs what is missing through the system's package manager and says what and why
# before it does. It never installs Rust: use rustup or the distribution's (1.88 or newer).

CARGO ?= cargo
STUDY ?= tour
ARCH ?= x86_64 aarch64

.PHONY: run install uninstall dist dist-twice test-dist test check book oldest-rust package licences build static static-try deps deps-test kernels bench bench-build clean

run: deps             ## build quickly, then run the built-in study `tour` (STUDY=NAME for another)
	TCPCOST_PROFILE=fast-build $(CARGO) build --profile fast-build --locked --package tcpcost
	@echo "tcpcost was built quickly, without link-time optimisation; its reports say (fast-build). For figures to keep: make build"
	$(or $(CARGO_TARGET_DIR),./target)/fast-build/tcpcost run $(STUDY)

build: deps
	$(CARGO) build --release --locked --package tcpcost
	@./scripts/split-debug $${CARGO_TARGET_DIR:-target}/release/tcpcost

install:              ## what `make build` built, with manual pages, completions, units and examples, into $DESTDIR$PREFIX (/usr/local)
	@./scripts/install

uninstall:            ## removes what `make install` installs there
	@./scripts/install --remove

dist:                 ## archives, packages, an image and checksums for each of ARCH, in dist/
	@./scripts/dist $(ARCH)

dist-twice:           ## whether `make dist` gives the same bytes from two folders
	@./scripts/dist-twice $(ARCH)

test-dist:            ## installs what is in dist/ in clean roots, tries it there, and removes it
	@./scripts/test-dist

static:               ## one file for each of ARCH, without libraries: runs on any Linux, and can be pushed to other hosts
	@./scripts/static $(ARCH)

static-try:           ## runs what `make static` built for each of ARCH, by qemu-user where it is of another
	@for arch in $(ARCH); do ./scripts/static-try $${CARGO_TARGET_DIR:-target}/static/tcpcost-$$arch || exit 1; done

test: deps deps-test  ## every test; ends with those that were skipped, and why (TCPCOST_REQUIRE=all: none may be)
	@./scripts/test $(CARGO) test --workspace --locked --no-fail-fast

check:                ## what CI checks besides the tests
	@./scripts/links
	@./scripts/workflows
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package tcpcost --no-default-features --all-targets --locked -- -D warnings
	$(CARGO) fmt --all --check

oldest-rust:          ## whether the oldest Rust that Cargo.toml promises builds everything; rustup fetches it
	rustup run --install $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) cargo check --workspace --locked

book:                 ## the pages as a site in target/book; fails on a dead link
	@./scripts/links
	@command -v mdbook >/dev/null || { echo 'make book: needs mdBook: cargo install mdbook --version 0.5.4 --locked' >&2; exit 1; }
	@./scripts/book

package:              ## whether every crate can be published, from its package alone
	@./scripts/package

licences:             ## whether all that is linked may be (deny.toml)
	@./scripts/licences

kernels: build        ## what works on which kernel: doctor and tour in guests of old and new ones (ARGS=--write: docs/kernels.md)
	$(CARGO) build --release --locked --package tcpcost-guest --example program
	@./scripts/need qemu-system-x86_64 qemu-system-x86 "guests run in it"
	@./scripts/kernel-matrix $(ARGS)

bench: bench-build    ## side by side with iperf3, neper and netperf, as far as they are installed
	bench/peers

bench-build: build    ## what bench/all runs
	$(CARGO) build --release --locked --package tcpcost-meter --example core_to_core --example exact_cpu
	$(CARGO) build --release --locked --package tcpcost-relay --example relay_load
	$(CARGO) build --release --locked --package tcpcost-tcp --example count
	$(CARGO) build --release --locked --package tcpcost-trace --example generate

deps:
	@./scripts/need cc gcc "Rust calls the C compiler's linker"
	@./scripts/need libelf.h libelf-dev "libbpf, which loads the eBPF meters, reads ELF files"
	@./scripts/need zlib.h zlib1g-dev "libelf reads compressed sections"
	@./scripts/need pkg-config pkg-config "libbpf's build asks it where libelf and zlib are"
	@./scripts/need $(CARGO) "" "the project is built with Rust 1.88 or newer: https://rustup.rs or your distribution's"

deps-test:
	@./scripts/need --optional clang clang "it builds the eBPF meters from their sources, and one test compares the checked-in objects with those; without it the checked-in ones are used"
	@./scripts/need --optional "chromium chromium-browser google-chrome" chromium "one test loads report.html in a real browser; without it that test is skipped"
	@./scripts/need --optional iperf3 iperf3 "one test measures another program's traffic; without it that test is skipped"
	@./scripts/need --optional curl curl "tests fetch with it from nginx and from our own TCP; without it they are skipped"
	@./scripts/need --optional "nginx /usr/sbin/nginx" nginx-light "one test tells what curl waited for of it; without it that test is skipped"
	@./scripts/need --optional /usr/sbin/sshd openssh-server "tests reach hosts of their own by ssh; without it they are skipped"
	@./scripts/need --optional ssh openssh-client "the same"
	@./scripts/need --optional qemu-system-x86_64 qemu-system-x86 "one test boots a guest whose clock counts instructions; without it that test is skipped"
	@./scripts/need --optional "nft /usr/sbin/nft" nftables "one test gives a guest rules with it; without it that test is skipped"
	@./scripts/need --optional bison bison "scripts/packetdrill builds packetdrill with it, whose scripts judge our TCP; without them that test is skipped"
	@./scripts/need --optional flex flex "the same"
	@./scripts/need --optional ethtool ethtool "scripts of packetdrill call it; without it that test is skipped"
	@./scripts/need --optional man man-db "a test shows the manual pages with it; without it they are only made"
	@./scripts/need --optional fish fish "a test completes a command with it; without it that test is skipped"
	@./scripts/need --optional zsh zsh "the same"
	@./scripts/need --optional tcpdump tcpdump "tests capture with it, and with libpcap, which it brings; without it they are skipped"
	@./scripts/need --optional /usr/sbin/slurmctld slurmctld "tests run studies on a Slurm of namespaces; without it they are skipped"
	@./scripts/need --optional /usr/sbin/slurmd slurmd "as slurmctld"
	@./scripts/need --optional srun slurm-client "as slurmctld"
	@./scripts/need --optional /usr/sbin/munged munge "as slurmctld"

clean:
	$(CARGO) clean
