// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/agent/configuration"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/policystream/client"
	policyserver "coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	policywire "coelan.io/coelan/internal/policystream/wire"
)

// nodeConfigurations is what a controller says holds for all nodes.
type nodeConfigurations struct {
	changed broadcast.Broadcast
	mu      sync.Mutex
	answer  *policywire.NodeConfiguration
	address netip.Addr
}

func (c *nodeConfigurations) Of(string) (policyserver.NodeConfiguration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return policyserver.NodeConfiguration{Addresses: []netip.Addr{c.address}, Answer: c.answer}, c.answer != nil
}

func (c *nodeConfigurations) Changed() <-chan struct{} { return c.changed.Changed() }
func (c *nodeConfigurations) Refused(string, error)    {}

func (c *nodeConfigurations) set(address string, a *policywire.NodeConfiguration) {
	c.mu.Lock()
	c.answer, c.address = a, netip.MustParseAddr(address)
	c.mu.Unlock()
	c.changed.Send()
}

// TestConfiguredByAController has a controller say over a real stream what holds for a node: the
// agent starts anew with it and keeps its pods, and the node's object says what it runs with.
func TestConfiguredByAController(t *testing.T) {
	for _, mode := range []config.PolicyMode{config.EnforcedPolicies, config.PoliciesOff} {
		t.Run(string(mode), func(t *testing.T) { configuredByAController(t, mode) })
	}
}

func configuredByAController(t *testing.T, mode config.PolicyMode) {
	controller := streamtest.Start(t)
	says := &nodeConfigurations{}
	controller.Hub.Configurations = says
	controllers := controller.ClientOptions("n1").Controllers
	c, f, n := newInMemoryCluster(), newFabric(), newInMemory(t)
	n.cfg.Policy.Mode, n.cfg.Policy.TokenFile = mode, filepath.Join(n.cfg.StateDir, "token")
	if err := os.WriteFile(n.cfg.Policy.TokenFile, []byte("node:n1"), 0o600); err != nil {
		t.Fatal(err)
	}
	links := &noLinks{made: map[string]bool{}}
	var m *configuration.Manager
	m = configuration.New(configuration.Options{
		Log: slog.New(slog.DiscardHandler), Base: n.cfg, File: n.cfg.StateFile(configuration.File),
		Make: func(cfg config.Config) (configuration.Agent, error) {
			return New(Options{
				Config: cfg, Configuration: m, Backend: f.factory(), Links: links, NodeName: "n1",
				Cluster: &inMemoryView{c, c.apis["n1"]}, Events: &quietEvents{}, Log: slog.New(slog.DiscardHandler),
				Controllers: func(context.Context) client.Controllers { return controllers }, Namespace: streamtest.Namespace,
			})
		},
	})
	n.run(t, m.Run)
	until := func(want string) {
		t.Helper()
		var got string
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			got = n.configured()
			if strings.HasPrefix(got, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the status is %q, want %q", got, want)
			}
		}
	}
	reported := func(part string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !slices.ContainsFunc(c.apis["n1"].Calls(), func(call string) bool {
			return strings.HasPrefix(call, "annotate node n1") && strings.Contains(call, part)
		}); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not reported: %q", part, c.apis["n1"].Calls())
			}
		}
	}
	nnc := func(generation int64, mtu int) *policywire.NodeConfiguration {
		return &policywire.NodeConfiguration{Name: "rack", Uid: "u", Generation: generation, Settings: fmt.Appendf(nil, `{"mtu":%d}`, mtu)}
	}

	says.set("192.0.2.77", nnc(1, 1400))
	until("1500 /0 problem 127.0.0.1 is not an address of node n1: its configuration is for 192.0.2.77")
	reported("127.0.0.1 is not an address of node n1")
	c.add("n1", "a")
	if err := n.try("ADD", "a"); err != nil {
		t.Fatal(err)
	}
	says.set("127.0.0.1", nnc(1, 1400))
	until("1400 rack/1")
	reported(`"applied":{"name":"rack"`)
	if !n.attached() {
		t.Error("the pod is lost")
	}
	says.set("127.0.0.1", nnc(2, 9000))
	until("1400 rack/1 refused nodenetworkconfig rack, generation 2: mtu: 9000 is too large")
	reported(`"refused":{"name":"rack"`)
	says.set("127.0.0.1", &policywire.NodeConfiguration{})
	until("1500 /0")
	if err := n.try("DEL", "a"); err != nil {
		t.Error(err)
	}
}

// configured is the MTU and the configuration that the agent's status has; empty while it does not
// answer.
func (n *inMemoryNode) configured() string {
	s, ok := n.status()
	if !ok || !n.listens() || !s.OVS.Connected || s.MTU == 0 || s.Conditions["fabric"] != "" {
		return ""
	}
	text := fmt.Sprintf("%d %s/%d", s.MTU, s.Configuration.Name, s.Configuration.Generation)
	if s.Configuration.Refused != "" {
		text += " refused " + s.Configuration.Refused
	}
	if s.Configuration.Problem != "" {
		text += " problem " + s.Configuration.Problem
	}
	return text
}

func (n *inMemoryNode) attached() bool {
	s, ok := n.status()
	return ok && s.Ports == 1
}

// status asks an agent that may be about to start anew.
func (n *inMemoryNode) status() (s agentapi.Status, ok bool) {
	r, err := over(n.cfg.AgentSocket).Get("http://agent/v1/status")
	if err != nil {
		return s, false
	}
	defer r.Body.Close()
	return s, json.NewDecoder(r.Body).Decode(&s) == nil
}
