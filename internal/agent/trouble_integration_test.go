// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/agent/dataplane"
	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
)

// TestTrouble has each kind of bad surroundings end in a clear reason, in nothing touched, and in
// work as soon as the cause is removed.
func TestTrouble(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	other := map[string]string{"netdev": "system", "system": "netdev"}[w.ovs.Datapath]
	good := w.cluster.nodes
	for _, tc := range []struct {
		name   string
		harm   func()
		reason string
		event  string
		mend   func()
	}{
		{
			name: "Open vSwitch stopped",
			harm: func() { w.ovs.KillVswitchd(); w.ovs.KillDB() }, reason: "ovs: Open vSwitch: the Open vSwitch database does not answer",
			mend: func() { w.must(w.ovs.StartDB(t.Context())); w.must(w.ovs.SpawnVswitchd()) },
		},
		{
			name: "vswitchd stopped",
			harm: func() { w.ovs.KillVswitchd() }, reason: "ovs: Open vSwitch: ovs-vswitchd is not running",
			mend: func() { w.must(w.ovs.SpawnVswitchd()) },
		},
		{
			name: "node not known", harm: func() { w.cluster.set(good[1]) }, reason: "node: node n1 is not known",
			mend: func() { w.cluster.set(good...) },
		},
		{
			name:   "no podCIDR",
			harm:   func() { w.cluster.set(node(thisNode, []string{"192.168.33.11"}, nil), good[1]) },
			reason: "node n1: spec.podCIDRs: empty", event: "node n1: NodeNotUsable: node n1: spec.podCIDRs: empty",
			mend: func() { w.cluster.set(good...) },
		},
		{
			name:   "address of another host",
			harm:   func() { w.cluster.set(node(thisNode, []string{"192.168.33.99"}, []string{"10.244.1.0/24"}), good[1]) },
			reason: "bridge: node n1: no interface of this host has the node's address 192.168.33.99",
			mend:   func() { w.cluster.set(good...) },
		},
		{
			name: "bridge with another datapath",
			harm: func() {
				w.vsctl("--no-wait", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+other)
			},
			reason: `bridge: bridge br-int: exists with datapath "` + other + `", wanted is "` + w.ovs.Datapath + `"`,
			mend:   func() { w.vsctl("--no-wait", "del-br", "br-int") },
		},
		{
			name: "bridge of somebody else",
			harm: func() {
				w.vsctl("--no-wait", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+w.ovs.Datapath, "--", "add-port", "br-int", "x0")
			},
			reason: "bridge: bridge br-int: exists, is not Coelan's and has ports (x0)",
			mend:   func() { w.vsctl("--no-wait", "del-br", "br-int") },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.harm()
			w.must(os.RemoveAll(w.cfg.StateDir))
			w.start()
			w.condition(tc.reason)
			if err := w.agent.dataplane().Ready(t.Context()); err == nil {
				t.Error("ready although a condition is not met")
			}
			if !strings.Contains(w.events.all(), tc.event) {
				t.Errorf("no event %q in:\n%s", tc.event, w.events.all())
			}
			if linkExists("coelan-gw0") && tc.name != "Open vSwitch stopped" && tc.name != "vswitchd stopped" {
				t.Error("the gateway was made although a condition is not met")
			}
			tc.mend()
			w.ready()
			w.must(w.stop())
			w.vsctl("del-br", "br-int")
		})
	}
}

// TestUserspaceTunnelNeedsUplinkOnBridge refuses a setup that would lose every
// packet between nodes.
func TestUserspaceTunnelNeedsUplinkOnBridge(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	if w.ovs.Datapath != "netdev" {
		t.Skip("only the userspace datapath sends through bridges")
	}
	w.vsctl("del-br", "br-phy")
	w.ip("addr add 192.168.33.11/24 dev eth0")
	w.ip("addr add fd33::11/64 nodad dev eth0")
	w.start()
	w.condition("node address 192.168.33.11 is on interface eth0, which is no Open vSwitch bridge")
	w.must(w.stop())
	w.cfg.Encapsulation = config.NoEncap
	w.start()
	w.ready()
}

// TestAttachDuringTrouble bounds what a runtime waits.
func TestAttachDuringTrouble(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	at := w.plug("a")
	w.ovs.KillVswitchd()
	w.condition("ovs-vswitchd is not running")
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	other := at
	other.Key = attachment.Key{ContainerID: "b", IfName: "eth0"}
	if err := w.agent.dataplane().Attach(ctx, other); err == nil || !strings.Contains(err.Error(), "agent is not ready") {
		t.Errorf("attach without Open vSwitch: %v", err)
	}
	if took := time.Since(start); took > dataplane.ReadyTimeout+time.Second {
		t.Errorf("attach took %v to fail", took)
	}
	w.must(w.agent.dataplane().Detach(ctx, at))
	w.ovs.KillDB()
	w.must(w.agent.dataplane().Detach(ctx, at))
	w.must(w.ovs.StartDB(ctx))
	w.must(w.ovs.SpawnVswitchd())
	w.ready()
}

func TestNodeVanishesWhilePodsRun(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	w.plug("a")
	flows := w.flows()
	nodes := w.cluster.nodes
	w.cluster.set(nodes[1])
	w.condition("node n1 has vanished from the API")
	if strings.Join(flows, "\n") != strings.Join(w.flows(), "\n") {
		t.Error("flows changed when the Node object vanished")
	}
	w.cluster.set(nodes...)
	w.ready()
	// The range changes under a running pod.
	w.cluster.set(node(thisNode, []string{"192.168.33.11"}, []string{"10.244.9.0/24"}), nodes[1])
	for deadline := time.Now().Add(bound); !strings.Contains(w.events.all(), "PodCIDRChanged: 1 pods have addresses outside"); {
		if time.Now().After(deadline) {
			t.Fatalf("no event about the change:\n%s", w.events.all())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestDamagedStateFile(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.must(os.MkdirAll(w.cfg.StateDir, 0o700))
	path := filepath.Join(w.cfg.StateDir, installation.State)
	w.must(os.WriteFile(path, []byte("nonsense\n"), 0o600))
	a, err := New(Options{Config: w.cfg, NodeName: thisNode, Cluster: w.cluster, Events: w.events})
	w.must(err)
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("started with a damaged state file: %v", err)
	}
}
