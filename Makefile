# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything that is built lands in bin/, every download in Go's own caches.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

# The release is the chart's appVersion; the commit tells builds of it apart.
RELEASE := v$(shell sed -n 's/^appVersion: *"\(.*\)"/\1/p' deploy/helm/coelan/Chart.yaml)
COMMIT := $(shell git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)
VERSION := $(RELEASE)+$(COMMIT)
LDFLAGS := -s -w -X coelan.io/coelan/internal/version.version=$(VERSION)

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/tools/golangci-lint-$(GOLANGCI_VERSION)

# A clone that belongs to another user makes Go's own stamping of binaries fail.
export GOFLAGS := -buildvcs=false $(GOFLAGS)

COMMANDS := $(notdir $(wildcard cmd/*))
# packages-with TAG: the folders whose test files carry that build tag.
packages-with = $(sort $(shell grep -rl --include='*_test.go' '^//go:build $(1)' . | xargs -r dirname))

##@ Build
.PHONY: deps
deps: ## install the Debian packages that are missing (hack/packages.txt)
	@hack/deps.sh

.PHONY: build
build: $(COMMANDS:%=bin/%) ## static binaries in bin/

.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%): bin/%:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

IMAGE := coelan.io/coelan:$(RELEASE)

.PHONY: images
images: build ## the image's archive, bin/images/coelan.tar
	go run ./hack/images -tag $(IMAGE) -bin bin -o bin/images/coelan.tar

.PHONY: generate
generate: ## write what is generated from other files: deploy/*.yaml from the chart
	go -C build/helm run . ../../deploy/helm/coelan ../../deploy

##@ Test
.PHONY: test
test: deps lint unit integration ## everything that a change must pass

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, see .golangci.yml
	$(GOLANGCI) run ./...
	cd build/helm && ../../$(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/bin/tools/new go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/tools/new/golangci-lint $@ && rmdir bin/tools/new

.PHONY: unit
unit: ## tests that need neither root nor Open vSwitch, with the race detector
	go -C build/helm test ./...
	go test -race -timeout 10m ./...

.PHONY: integration
integration: ## tests against a real Open vSwitch and real namespaces (root)
	$(if $(call packages-with,integration),go test -race -tags integration -count=1 -p 1 -timeout 15m $(call packages-with,integration))

##@ Outside suites
KUBERNETES := $(shell sed -n 's/^require k8s.io\/kubernetes //p' build/kubernetes/go.mod)
kube-version = -X k8s.io/component-base/version.$(1)
E2E_LDFLAGS := -s -w $(call kube-version,gitVersion=$(KUBERNETES)) $(call kube-version,gitMajor=1) \
  $(call kube-version,gitMinor=$(word 2,$(subst ., ,$(KUBERNETES))))
E2E_TEST := bin/kubernetes/$(KUBERNETES)/e2e.test

$(E2E_TEST): build/kubernetes/go.mod
	@mkdir -p $(@D)
	CGO_ENABLED=0 go test -C build/kubernetes -c -trimpath -ldflags '$(E2E_LDFLAGS)' -o $(CURDIR)/$@ k8s.io/kubernetes/test/e2e

.PHONY: test-kernel
test-kernel: ## the integration tests on the kernel's datapath, in an emulated machine with Debian's kernel
	@mkdir -p bin/kernel
	CGO_ENABLED=0 go build -o bin/kernel/ ./test/kernel ./cmd/coelan-agent ./cmd/coelan-cni
	CGO_ENABLED=0 go test -tags integration -c -o bin/kernel/integration.test ./test/integration
	bin/kernel/kernel -out bin/kernel/out -timeout 20m -env COELAN_TEST_DATAPATH=system -env COELAN_LAB_BIN=$(CURDIR)/bin/kernel \
	  bin/kernel/integration.test -test.v -test.timeout 18m $(if $(RUN),-test.run '$(RUN)')

##@ Other
.PHONY: clean
clean: ## remove what was built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile
