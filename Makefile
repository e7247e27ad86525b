# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. What is built of this repository lands in bin/; what a sandbox is made of, Kubernetes
# above all, in /var/cache/coelan or $COELAN_CACHE, once for all clones.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

# The release is the chart's appVersion; the commit tells builds of it apart.
RELEASE := v$(shell sed -n 's/^appVersion: *"\(.*\)"/\1/p' deploy/helm/coelan/Chart.yaml)
COMMIT := $(shell git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)
VERSION := $(RELEASE)+$(COMMIT)
LDFLAGS := -s -w -X coelan.io/coelan/internal/version.version=$(VERSION)

# Tools, each under the name of its version.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/tools/golangci-lint-$(GOLANGCI_VERSION)
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := bin/tools/gotestsum-$(GOTESTSUM_VERSION)

# Every target uses all of the machine, and several make the same networks.
.NOTPARALLEL:

# A clone that belongs to another user makes Go's own stamping of binaries fail. Programs, tests and lint are built
# alike, to use the same cache: of other flags Go would compile all that is imported once more. So there are two
# forms of each package, this one and the race detector's, which needs cgo.
export GOFLAGS := -buildvcs=false -trimpath $(GOFLAGS)
export CGO_ENABLED := 0
RACE := CGO_ENABLED=1 go test -race

COMMANDS := $(notdir $(wildcard cmd/*))
# packages-with TAG: the folders whose test files carry that build tag.
packages-with = $(sort $(shell grep -rl --include='*_test.go' '^//go:build $(1)' . | xargs -r dirname))
# tests-with TAG: a regular expression of the tests in these files. The others of their packages are unit tests.
tests-with = ^($(shell grep -rl --include='*_test.go' '^//go:build $(1)' . | \
  xargs -r sed -n 's/^func \(Test[A-Z0-9][A-Za-z0-9_]*\)[(]t \*testing[.]T[)].*/\1/p' | sort -u | paste -sd'|'))$$

# These run nothing in goroutines (tests of the pipeline see to that), so that the race detector has nothing to find, and
# their generated cases would take ten times as long with it.
SEQUENTIAL := ./internal/backend/ovn/compile ./internal/backend/ovs/pipeline

##@ Build
.PHONY: deps
deps: ## install the Debian packages that are missing (hack/packages.txt)
	@hack/deps.sh

.PHONY: deps-neutron
deps-neutron: deps ## install the Debian packages for Neutron that are missing (hack/packages-neutron.txt)
	@hack/deps.sh packages-neutron.txt

# What a sandbox with the backend BACKEND needs.
SANDBOX_DEPS = $(if $(filter neutron,$(BACKEND)),deps-neutron,deps)

.PHONY: build
build: $(COMMANDS:%=bin/%) ## static binaries in bin/

.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%): bin/%:
	go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

IMAGE := coelan.io/coelan:$(RELEASE)

.PHONY: images
images: build ## the image's archive, bin/images/coelan.tar
	go run ./hack/images -tag $(IMAGE) -bin bin -o bin/images/coelan.tar

.PHONY: ovn-image
ovn-image: deps ## the archive of an image with OVN, of Debian's packages: bin/images/ovn.tar (root)
	go run ./hack/images -ovn -tag coelan.io/ovn:$(RELEASE) -o bin/images/ovn.tar

.PHONY: sandbox-assets
sandbox-assets: bin/coelan ## what sandboxes are made of, once: Kubernetes, etcd, CoreDNS, test images
	bin/coelan sandbox prepare

.PHONY: generate
generate: ## write what is generated from other files: of api/ the CRDs and copies, of *.proto and yang/ Go, of the chart deploy/*.yaml, of the pipeline its tables in docs/
	go -C build/apigen run . ../..
	go -C build/protogen run . ../..
	go -C build/yanggen run . ../..
	go -C build/helm run . ../../deploy/helm/coelan ../../deploy
	go test ./internal/backend/ovs/pipeline -run '^TestDatapathPage$$' -update

.PHONY: demo
# The sandbox makes what it needs by itself, which is less than sandbox-assets.
demo: deps images ## a cluster on this machine: pods, a policy, two tenants, floating IPs, a pod with three interfaces
	@hack/demo/demo.sh

##@ Test
.PHONY: test
test: deps ## everything that a change must pass: lint, unit, integration, apiserver and the brief sets of the others
	@hack/test.sh

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, see .golangci.yml
	$(GOLANGCI) run ./...
	cd build/apigen && ../../$(GOLANGCI) run ./...
	cd build/helm && ../../$(GOLANGCI) run ./...
	cd build/protogen && ../../$(GOLANGCI) run ./...
	cd build/yanggen && ../../$(GOLANGCI) run ./...

$(GOLANGCI): MODULE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
$(GOTESTSUM): MODULE := gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
$(GOLANGCI) $(GOTESTSUM):
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/bin/tools/new go install $(MODULE)
	@mv bin/tools/new/* $@ && rmdir bin/tools/new

.PHONY: unit
unit: ## tests that need neither root nor Open vSwitch, with the race detector
	# What these compare is outside of their modules, where Go's cache of results does not look.
	go -C build/apigen test -count=1 ./...
	go -C build/helm test -count=1 ./...
	go -C build/protogen test -count=1 ./...
	go -C build/yanggen test -count=1 ./...
	$(RACE) -timeout 10m $$(go list ./... | grep -vxF $(SEQUENTIAL:./%=-e coelan.io/coelan/%))
	go test -timeout 10m $(SEQUENTIAL)

.PHONY: yang
yang: deps ## check the YANG models with yanglint
	for f in yang/*.yang; do yanglint -p yang "$$f"; done

.PHONY: explore
# Files with generated cases, and a regular expression of the tests in them.
explore: ROUNDS = 10
explore: FILES = $(shell grep -rlE --include='*_test.go' '"pgregory.net/rapid"|/rapidtest"' internal openflow)
explore: TESTS = $(shell sed -n 's/^func \(Test[A-Z0-9][A-Za-z0-9_]*\)[(]t \*testing[.]T[)].*/\1/p' $(FILES) | sort -u | paste -sd'|')
explore: deps ## generated tests, ROUNDS times with other cases than make test has; RUN='regexp' (root)
	RAPID_SEED=0 go test -tags integration -count=$(ROUNDS) -timeout 10h -run '$(or $(RUN),^($(TESTS))$$)' $(sort $(dir $(FILES:%=./%)))

.PHONY: integration
# They wait most of the time; each package makes networks of its own. Tests of one package that count lost packets want the machine for
# themselves, so what compiles the next one has what they leave.
# The package that takes as long as all others begins first.
integration: LONGEST = ./test/integration
integration: PACKAGES = $(filter-out $(SEQUENTIAL),$(call packages-with,integration))
integration: TESTS = -toolexec 'nice -n 19' -tags integration -count=1 -run '$(or $(RUN),$(call tests-with,integration))' $(if $(SKIP),-skip '$(SKIP)')
integration: ## tests against a real Open vSwitch and real namespaces (root)
	go test -timeout 15m $(TESTS) $(SEQUENTIAL) & sequential=$$!; status=0; \
	  $(RACE) -timeout 25m -p 2 -parallel 1 $(TESTS) $(LONGEST) $(filter-out $(LONGEST),$(PACKAGES)) || status=$$?; \
	  wait $$sequential && exit $$status

.PHONY: integration-brief
# These are of sizes and of rare restarts, or show once more what other tests show.
integration-brief: SKIP = TestBulk|TestCentralized$$/agent|TestChurn$$|TestDHCPRelay|TestInterruptedMovesOfCards|TestIPAMDHCPMachines|TestManyServices|TestNativeServicesThroughRestarts|TestUplinksShared$$
integration-brief: integration ## those of integration that are a part of make test

.PHONY: apiserver
apiserver: deps sandbox-assets ## tests of the controller against a real etcd and API server
	$(RACE) -tags apiserver -count=1 -p 2 -timeout 20m -run '$(or $(RUN),$(call tests-with,apiserver))' \
	  $(call packages-with,apiserver)

# What `make apiserver` does in seconds, for LOAD.
LOAD := 10m
UNDER_LOAD := go test -tags apiserver -count=1 -v -timeout 60m ./internal/restconf -load $(LOAD)

.PHONY: test-restconf-load
test-restconf-load: deps sandbox-assets ## two replicas of RESTCONF, 20 clients, and others by kubectl, for LOAD: no update is lost
	$(UNDER_LOAD) -run '^TestIncrements$$'

.PHONY: test-watcher-load
test-watcher-load: deps sandbox-assets ## the watcher of one cluster writes to another for LOAD, and either side is killed at random points
	$(UNDER_LOAD) -run '^TestClusterToCluster$$'

.PHONY: compile
# Go keeps the packages that it has compiled, not what it links of them.
compile: ## what the tests of apiserver, test-kernel and e2e are made of, into Go's cache: they start earlier
	$(RACE) -tags apiserver -c -o /dev/null $(call packages-with,apiserver)
	go test -tags integration -c -o /dev/null ./test/integration
	go test -tags e2e -c -o /dev/null $(call packages-with,e2e)

.PHONY: bench
# RUN=ovn measures one group, and writes bench/ovn.json.
bench: $(if $(filter-out neutron,$(RUN)),deps,deps-neutron) $(if $(filter ovn neutron,$(RUN)),,images sandbox-assets upgrade-images) ## measures, as a table and in bench/results.json (root, an idle machine): [RUN=group]
	go run ./test/bench $(if $(RUN),-run '$(RUN)') -o bench/$(or $(RUN),results).json

# The clock of the machine is the number of instructions that it has run, so the load of this one does not matter.
COUNTED = bin/kernel/kernel -counted -out bin/kernel/out -env COELAN_TEST_DATAPATH=system -env COELAN_LAB_BIN=$(CURDIR)/bin/kernel

.PHONY: counted-binaries
counted-binaries:
	@mkdir -p bin/kernel/out bench
	go build -o bin/kernel/ ./test/kernel ./test/bench ./cmd/coelan-agent ./cmd/coelan-cni

.PHONY: bench-kernel
bench-kernel: RUN = ^$(if $(PROFILE),profile-$(PROFILE),(pod|cross-node|recirc|service-traffic|policy-traffic|gateways-traffic))$$
bench-kernel: deps sandbox-assets counted-binaries ## the measures of traffic in counted instructions, on the kernel's datapath, as a table and in bench/kernel.json
	$(COUNTED) -timeout 120m bin/kernel/bench -run '$(RUN)' -o /run/out/kernel.json
	@cp bin/kernel/out/kernel.json bench/kernel.json

.PHONY: gate-kernel
# UPDATE=1 writes what it has counted into the tree, in place of the comparison.
gate-kernel: deps counted-binaries ## compares the instructions of a brief set with test/bench/instructions.json: growth of more than 3 % fails
	$(COUNTED) -timeout 20m bin/kernel/bench -run '^instructions$$' -figures /run/out/instructions.json \
	  $(if $(UPDATE),,-gate test/bench/instructions.json)
	$(if $(UPDATE),@cp bin/kernel/out/instructions.json test/bench/instructions.json)

.PHONY: e2e
# Prints a line for each test, and at the end the output of those that failed. bin/e2e.json has the output of
# all tests, and bin/e2e.md the table of what restarts cost.
e2e: $(SANDBOX_DEPS) images sandbox-assets $(GOTESTSUM) ## tests of all of it, in a sandbox cluster of their own (root)
	@rm -f bin/e2e.md
	COELAN_E2E_TABLE=$(CURDIR)/bin/e2e.md \
	  $(GOTESTSUM) --format testname --hide-summary skipped --jsonfile bin/e2e.json -- -tags e2e -count=1 -p 1 -timeout 60m $(if $(RUN),-run '$(RUN)') $(if $(SKIP),-skip '$(SKIP)') $(call packages-with,e2e)

.PHONY: e2e-brief
# These wait for long, or show once more what other tests show.
e2e-brief: SKIP = TestCNIConfigurations|TestControlPlanes|TestCoelan/events/database_hangs|TestCoelan/reboots/all_nodes_rebooted_again|TestCoelan/restarts/agent_stuck|TestCoelan/without_API_server|TestDHCP/machine_without|TestEgress/candidates_apart|TestEgress/cut_off|TestEgress/planned|TestEgress/power_cut|TestEgress/restarts|TestFloatingIPs/restarts|TestGateways/centralized|TestGateways/distributed/Open_vSwitch|TestGateways/distributed/virtual_machine|TestMappingBack|TestNetworks/Multus|TestNodeNetworkConfig|TestPolicies/restarts|TestRESTCONF|TestSandbox|TestServices/agent_restarted|TestServices/node_lost|TestTC1|TestTC3|TestTC4|TestUpgrade|TestWatcher/changes_while
e2e-brief: e2e ## those of e2e that are a part of make test

# TestUpgrade begins with this commit.
UPGRADE_FROM ?= $(shell cat hack/upgrade-from)
UPGRADE_COMMIT = $(shell git rev-parse --verify --quiet '$(UPGRADE_FROM)^{commit}')

.PHONY: upgrade-images
upgrade-images: ## the image and the manifest that TestUpgrade begins with, of the commit UPGRADE_FROM: bin/upgrade/
	@[ -n '$(UPGRADE_COMMIT)' ] || { echo "upgrade-images: there is no commit '$(UPGRADE_FROM)' in this clone: if it is shallow," \
	  "git fetch --unshallow; else set UPGRADE_FROM" >&2; exit 2; }
	@[ "$$(cat bin/upgrade/commit 2>/dev/null)" = $(UPGRADE_COMMIT) ] || { rm -rf bin/upgrade && mkdir -p bin/upgrade/source && \
	  git archive $(UPGRADE_COMMIT) | tar -x -C bin/upgrade/source && \
	  $(MAKE) -C bin/upgrade/source images IMAGE=coelan.io/coelan:upgrade-from COMMIT=$(UPGRADE_COMMIT) && \
	  mv bin/upgrade/source/bin/images/coelan.tar bin/upgrade/source/deploy/coelan.yaml bin/upgrade/ && \
	  rm -rf bin/upgrade/source && echo $(UPGRADE_COMMIT) >bin/upgrade/commit; }

.PHONY: attack
attack: RUN = TestAttack|TestNoisyNeighbour
attack: e2e ## what a hostile pod, tenant, token or host outside must not be able to do, tried in a sandbox

.PHONY: test-kernel
test-kernel: ## the integration tests on the kernel's datapath, in an emulated machine with Debian's kernel
	@mkdir -p bin/kernel
	go build -ldflags '-s -w' -o bin/kernel/ ./test/kernel ./cmd/coelan-agent ./cmd/coelan-cni
	go test -tags integration -c -o bin/kernel/integration.test ./test/integration
	bin/kernel/kernel -out bin/kernel/out -timeout 20m -env COELAN_TEST_DATAPATH=system -env COELAN_LAB_BIN=$(CURDIR)/bin/kernel \
	  bin/kernel/integration.test -test.v -test.parallel 1 -test.timeout 18m $(if $(RUN),-test.run '$(RUN)') $(if $(SKIP),-test.skip '$(SKIP)')

.PHONY: test-kernel-brief
# These are slow in an emulated machine; what they are about other tests there or on the userspace datapath show as well.
test-kernel-brief: SKIP = TestAgentServices|TestBridgeOfAConfiguration|TestBulk|TestCentralized|TestChurn|TestCOEConfigurations|TestDHCP|TestDynamicDHCP|TestExternalController|TestFixedAddressInAnotherNodesBlock|TestFloatingIPs$$/before|TestFloatingIPs$$/in_the_cluster|TestFloatingIPs$$/moves|TestFloatingIPs$$/policies|TestFloatingIPs$$/removed|TestFloatingIPs$$/restarts|TestFloatingIPsOfNodesSegment|TestFloatingIPsOfServices|TestGateways$$/^in|TestGateways$$/before|TestGateways$$/changes|TestGateways$$/policies|TestGateways$$/removed|TestGateways$$/restarts|TestGateways$$/Services|TestGatewaysOnNodesSegment|TestGatewayTraces|TestGuest|TestIPAMDHCP|TestLinkChurn|TestNamespaceMapping|TestNarrow|TestNativeServicesThroughRestarts|TestNetworkBoot|TestOVN|TestPolicies$$|TestPoliciesOfTenants|TestPolicyRoutes|TestReachOtherwise|TestReboot|TestReleasedAfterPings|TestRestarts$$/agent_stopped|TestRestarts$$/both|TestRestarts$$/ovs-vswitchd_stopped|TestRestarts$$/ovsdb-server|TestRoutedGateways$$/not_in|TestService$$|TestServiceBulk|TestTenants|TestUnreachable|TestUplinks$$|TestUplinksShared|TestWhatPodsCannotHave|TestWithoutAPIServer|TestWithoutDefinitions
test-kernel-brief: test-kernel ## those of test-kernel that are a part of make test

##@ Outside suites
# The same directories as `coelan sandbox prepare` uses.
CACHE := $(or $(COELAN_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/coelan,/var/cache/coelan))
KUBERNETES := $(shell sed -n 's/^\tk8s.io\/kubernetes //p' build/kubernetes/go.mod)
KUBERNETES_BIN := $(CACHE)/kubernetes-$(KUBERNETES)-$(shell go env GOARCH)
E2E_TEST := $(KUBERNETES_BIN)/e2e.test
E2E_VERSION := k8s.io/component-base/version.gitVersion=$(KUBERNETES)

POLICIES := $(shell sed -n 's/^.*sigs.k8s.io\/network-policy-api //p' build/netpolapi/go.mod)
.PHONY: test-ovn-brief
test-ovn-brief: ## the backend ovn in a sandbox, as a part of make test (root)
	BACKEND=ovn $(MAKE) e2e RUN='^TestBackend$$'

.PHONY: test-ovn
# FAULTS pods come and go while programs are killed at random points; SEED draws the same points again.
test-ovn: FAULTS = 1000
test-ovn: SEED = 0
test-ovn: test-ovn-brief ## the backend ovn: in a sandbox, whole agents with OVN, the rows in its databases, and faults at random (root)
	$(MAKE) integration RUN='^(TestBackendOVN|TestOVN|TestSync|TestStrangers|TestOnePodMore|TestDatabaseUnderIt|TestReadOnly|TestCluster|TestTLS|TestSilence|TestMeaning|TestGatewayMeaning|TestPackets)'
	go test -tags integration -count=1 -v ./internal/backend/ovn/northbound -run '^TestScale$$' -scale 10
	$(RACE) -tags integration -count=1 -v -timeout 60m ./test/integration -run '^TestOVNFaults$$' -faults $(FAULTS) -faults-seed $(SEED)

.PHONY: test-neutron-brief
test-neutron-brief: RUN = ^TestNeutron$$/^(reach|changes_by_hand|ready_ports|restarts|away)$$
test-neutron-brief: test-neutron ## those of test-neutron that are a part of make test

.PHONY: test-neutron
# A pod's port waits for Neutron: the tests want the machine for themselves. With RUN only those of whole agents run.
test-neutron: deps-neutron ## the backend neutron: whole agents with a real Neutron on OVN, and in a sandbox (root)
	go test -tags integration,neutron -count=1 -v -timeout 20m -run '$(or $(RUN),^Test(Neutron|Octavia))' ./test/integration
	$(if $(RUN),,go test -tags 'integration neutron' -count=1 -v -timeout 20m -run '^TestBackendNeutron' ./test/backend)
	$(if $(RUN),,BACKEND=neutron $(MAKE) e2e RUN='^(TestBackend|TestNeutron|TestFromKuryr|TestOctavia|TestOpenStackReboots)$$')

CNP_TEST := $(CACHE)/netpolapi-$(POLICIES)-$(shell go env GOARCH)/conformance.test

.PHONY: conformance
conformance: $(SANDBOX_DEPS) images sandbox-assets conformance-assets ## upstream's end-to-end tests: FOCUS='regexp' [SKIP='regexp'], docs/develop/conformance.md
	@$(if $(FOCUS),,echo "conformance: set FOCUS='regexp', such as '\[sig-network\] Services'" >&2; exit 2)
	test/conformance/run.sh $(KUBERNETES_BIN) '$(value FOCUS)' '$(value SKIP)'

.PHONY: conformance-network
conformance-network: $(SANDBOX_DEPS) images sandbox-assets conformance-assets ## upstream's network cases that every Kubernetes cluster has to pass
	test/conformance/run.sh $(KUBERNETES_BIN) '\[sig-network\].*\[Conformance\]'

.PHONY: conformance-brief
conformance-brief: NETPOL := default-deny-all|on one named port|except clause|updated policy
conformance-brief: $(SANDBOX_DEPS) images sandbox-assets conformance-assets ## those of upstream's cases that are a part of make test
	test/conformance/run.sh $(KUBERNETES_BIN) '\[sig-network\].*\[Conformance\]|Netpol.*($(value NETPOL))' 'SCTPConnectivity'

.PHONY: conformance-policy
conformance-policy: $(SANDBOX_DEPS) images sandbox-assets conformance-assets ## upstream's cases of NetworkPolicies
	test/conformance/run.sh $(KUBERNETES_BIN) '\[sig-network\] Netpol'

.PHONY: conformance-cnp
conformance-cnp: $(SANDBOX_DEPS) images sandbox-assets $(CNP_TEST) ## upstream's suite of ClusterNetworkPolicies: [RUN='regexp'] [SKIP='regexp']
	test/conformance/cnp.sh $(CNP_TEST) '$(value RUN)' '$(value SKIP)'

$(CNP_TEST):
	@mkdir -p $(@D)
	go test -C build/netpolapi -c -ldflags '-s -w' -o $@ sigs.k8s.io/network-policy-api/conformance

# The suite, and the runner of its version.
.PHONY: conformance-assets
conformance-assets: sandbox-assets
	test -x $(KUBERNETES_BIN)/ginkgo || go build -C build/kubernetes \
	  -ldflags '-s -w' -o $(KUBERNETES_BIN)/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	test -x $(E2E_TEST) || go test -C build/kubernetes -c \
	  -ldflags '-s -w -X $(E2E_VERSION)' -o $(E2E_TEST) k8s.io/kubernetes/test/e2e

##@ Other
.PHONY: clean
clean: ## remove what was built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' Makefile
