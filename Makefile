# Two commands are all a newcomer needs, each from nothing: `make demo` and `make test`.
# They install what they need from Debian's packages and crates.io, start only processes of their own in
# $(VOLFERRY_LAB_DIR) (default: .lab), and stop them again.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-lab test-trixie lint fmt build install lab-up lab-down lab-smoke bench fuzz torture cases clean
.PHONY: package-files deb rpm test-package deny

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

install: ## Install the packages that building and testing need (Debian 12, as root)
	@tests/lab/install.sh

build: install ## Build the release binaries
	cargo build --release --locked -p volferry-agent -p volferry-tests --bins

demo: build ## Watch the disks of a writing guest move from qcow2 to Ceph, to another pool, and back
	@tests/lab/with-lab.sh target/release/lab-demo

test: install lint test-quick test-lab ## Everything, from nothing, on real libvirt, QEMU and Ceph

lint: install ## Formatting and clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

test-quick: install ## Tests that need no lab
	VOLFERRY_PROMTOOL=$$(source tests/lab/env.sh && echo $$LAB/cache/promtool) VOLFERRY_REQUIRE_TOOLS=1 \
	  cargo test --workspace --features rbdutils/native,volferry-agent/testing --locked

cases: build ## Real-world inputs with the right answers
	@tests/run-cases.sh

test-lab: build cases ## Tests on a writing guest in the lab
	@tests/lab/with-lab.sh tests/run-lab-tests.sh

test-trixie: build ## What only a newer libvirt and QEMU can do, in a Debian 13 beside the lab (by hand: it fetches 600 MiB the first time)
	@tests/lab/with-lab.sh tests/run-trixie-tests.sh

lab-up: ## Start the lab: a one-node Ceph, a private libvirtd, file pools (LAB=trixie: and a libvirtd of Debian 13)
	@tests/lab/lab-up.sh $(LAB)

lab-down: ## Stop the lab (PURGE=1 removes its folder too)
	@tests/lab/lab-down.sh $(if $(PURGE),--purge)

lab-smoke: build ## Show that the lab itself is sound, without volferry
	@tests/lab/with-lab.sh tests/lab/smoke.sh

torture: install ## Kill agent, libvirtd and QEMU at every point of moves (by hand, an hour; figures go to docs/reliability.md)
	@tests/lab/with-lab.sh tests/run-torture.sh $(TORTURE)

fuzz: install ## Hostile requests and configurations, ten minutes each (by hand; figures go to docs/reliability.md)
	VOLFERRY_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) cargo test -p volferry-agent --features testing --locked --test fuzz_api --test fuzz_config -- --nocapture

bench: build ## Measure the budgets (by hand, minutes; figures go to docs/performance.md)
	@tests/lab/with-lab.sh tests/run-bench.sh

# Tools that make and check packages, in a folder of the project's own. Versions are raised here.
TOOLS := target/tools
CARGO_DEB := $(TOOLS)/bin/cargo-deb
CARGO_RPM := $(TOOLS)/bin/cargo-generate-rpm
CARGO_DENY := $(TOOLS)/bin/cargo-deny
$(CARGO_DEB):
	cargo install --locked --root $(TOOLS) cargo-deb@3.8.0
$(CARGO_RPM):
	cargo install --locked --root $(TOOLS) cargo-generate-rpm@0.21.1
$(CARGO_DENY):
	cargo install --locked --root $(TOOLS) cargo-deny@0.20.2

package-files: install
	cargo build --release --locked -p volferry-agent --bins
	cargo run --release --locked -p volferry-packaging --bin package-files -- target/package

# VERSION=1.2.3 gives the package another version than the sources have.
deb: package-files $(CARGO_DEB) ## Make the Debian package, in target/debian
	rm -f target/debian/*.deb
	$(CARGO_DEB) -p volferry-agent --no-build --output target/debian/ $(if $(VERSION),--deb-version $(VERSION))

rpm: package-files $(CARGO_RPM) ## Make the RPM package, in target/rpm, and look into it
	mkdir -p target/rpm && rm -f target/rpm/*.rpm
	$(CARGO_RPM) -p agent --output target/rpm/
	@tests/check-rpm.sh target/rpm/*.rpm

test-package: deb ## Install, use, upgrade, remove and purge the Debian package in a Debian that systemd runs (by hand, minutes)
	@tests/lab/with-lab.sh tests/run-package-test.sh

deny: $(CARGO_DENY) ## Licences, sources, duplicate versions and advisories of every crate (the tool takes minutes to build)
	$(CARGO_DENY) check --deny unmatched-skip --deny unnecessary-skip licenses bans sources
	@if git ls-remote -q https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then $(CARGO_DENY) check advisories; \
	else echo "deny: SKIPPED advisories: the database cannot be reached" >&2; fi

fmt: ## Format
	cargo fmt --all

clean: ## Stop the lab, remove it and what was built
	tests/lab/lab-down.sh --purge
	cargo clean
