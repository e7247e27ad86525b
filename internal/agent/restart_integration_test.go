// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
)

// hostShape is what the host's kernel has, in words.
func (w *world) hostShape() string {
	w.t.Helper()
	out := w.ip("-o addr show dev coelan-gw0") + w.ip("route show table all proto 206") + w.ip("-6 route show table all proto 206")
	nft, err := exec.Command("nft", "list", "table", "inet", "coelan").CombinedOutput()
	w.must(err)
	return out + string(nft)
}

// TestAgentRestartChangesNothing watches the switch, the database and the kernel while
// an agent takes over.
func TestAgentRestartChangesNothing(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	for i := range 5 {
		w.plug(fmt.Sprint("p", i))
	}
	flows, host, ports := w.flows(), w.hostShape(), w.vsctl("--columns=_uuid,name,ofport", "list", "interface")
	w.must(w.stop())
	monitor := exec.Command("ip", "monitor", "link", "address", "route")
	var events strings.Builder
	monitor.Stdout = &events
	w.must(monitor.Start())
	w.start()
	w.ready()
	s := query[agentapi.Status](w, "/v1/status", "")
	if s.Sync.Added+s.Sync.Changed+s.Sync.Deleted != 0 || s.Host.Changes != 0 {
		t.Errorf("the restart wrote %+v and %d times to the host", s.Sync, s.Host.Changes)
	}
	w.whole()
	if diff := cmp.Diff(flows, w.flows()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(host, w.hostShape()); diff != "" {
		t.Errorf("host (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(ports, w.vsctl("--columns=_uuid,name,ofport", "list", "interface")); diff != "" {
		t.Errorf("ports (-before +after):\n%s", diff)
	}
	w.must(monitor.Process.Kill())
	_ = monitor.Wait()
	if events.Len() > 0 {
		t.Errorf("the kernel was written to:\n%s", events.String())
	}
}

// TestAgentStartsWithoutAPIServer has an agent take over that sees no nodes.
func TestAgentStartsWithoutAPIServer(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	w.plug("a")
	flows := w.flows()
	w.must(w.stop())
	w.startWith(away{})
	w.ready()
	if diff := cmp.Diff(flows, w.flows()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
	w.plug("b")
}

// TestOpenVSwitchRestarts breaks Open vSwitch in every way and bounds the time until all is back.
func TestOpenVSwitchRestarts(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	var pods []attachment.Attachment
	for i := range 5 {
		pods = append(pods, w.plug(fmt.Sprint("p", i)))
	}
	flows, uplink := sorted(w.flows()), w.uplinkShape()
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		harm func() error
	}{
		{"vswitchd killed", func() error { w.ovs.KillVswitchd(); return w.ovs.SpawnVswitchd() }},
		{"vswitchd stopped", func() error { w.ovs.StopVswitchd(); return w.ovs.SpawnVswitchd() }},
		{"database killed", func() error { w.ovs.KillDB(); return w.ovs.StartDB(ctx) }},
		{"both killed", func() error {
			w.ovs.KillVswitchd()
			w.ovs.KillDB()
			w.must(w.ovs.StartDB(ctx))
			return w.ovs.SpawnVswitchd()
		}},
		{"bridge deleted", func() error { _, err := w.ovs.Vsctl(ctx, "del-br", "br-int"); return err }},
		{"port deleted", func() error { _, err := w.ovs.Vsctl(ctx, "del-port", pods[0].HostInterface); return err }},
		{"flows deleted behind a new connection", func() error {
			_, err := w.ovs.Ofctl(ctx, "del-flows", "br-int")
			w.must(err)
			w.ovs.KillVswitchd()
			return w.ovs.SpawnVswitchd()
		}},
		{"foreign port of ours", func() error {
			w.veth("coffffffffffff")
			_, err := w.ovs.Vsctl(ctx, "add-port", "br-int", "coffffffffffff", "--", "set", "interface", "coffffffffffff", "external_ids:coelan-owner=coelan")
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			w.must(tc.harm())
			back := func() error { return w.back(pods, flows, uplink) }
			var err error
			for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
				if err = back(); err == nil {
					t.Logf("back after %v", time.Since(start).Round(time.Millisecond))
					return
				}
			}
			t.Fatal(err)
		})
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func (w *world) uplinkShape() string {
	out, _ := exec.Command("sh", "-c", "ip -o addr show scope global; ip route; ip -6 route | grep -v fe80").CombinedOutput()
	var lines []string
	for _, l := range strings.Split(string(out), "\n") {
		if f := strings.Fields(l); len(f) > 2 {
			// Numbers and lifetimes of interfaces differ.
			lines = append(lines, strings.Join(f[1:], " "))
		}
	}
	return strings.Join(lines, "\n")
}

// back says what is missing compared with a node at rest.
func (w *world) back(pods []attachment.Attachment, flows []string, uplink string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), bound)
	defer cancel()
	out, err := w.ovs.Ofctl(ctx, "--no-stats", "--no-names", "dump-flows", "br-int")
	if err != nil {
		return err
	}
	if diff := cmp.Diff(flows, sorted(strings.Split(strings.TrimSpace(out), "\n"))); diff != "" {
		return fmt.Errorf("flows: %s", diff)
	}
	for _, at := range pods {
		out, err := w.ovs.Vsctl(ctx, "get", "interface", at.HostInterface, "ofport")
		if err != nil || strings.TrimSpace(out) != fmt.Sprint(at.OFPort) {
			return fmt.Errorf("port of %s: %q, %w", at.PodName, out, err)
		}
	}
	if _, err := w.ovs.Vsctl(ctx, "get", "interface", "coffffffffffff", "name"); err == nil {
		return fmt.Errorf("the foreign port is still there")
	}
	if err := w.agent.health.conditions.Ready(); err != nil {
		return err
	}
	if diff := cmp.Diff(uplink, w.uplinkShape()); diff != "" {
		return fmt.Errorf("uplink: %s", diff)
	}
	if w.ovs.Datapath == "netdev" {
		limits, err := w.ovs.Appctl(ctx, "dpctl/ct-get-limits", "netdev@ovs-netdev")
		if err != nil || !strings.Contains(limits, "zone=1,limit=1500000,") {
			return fmt.Errorf("limits of connections: %q, %w", limits, err)
		}
	}
	return nil
}

// TestLeftoversAreRemoved plants what a crash in the middle of an ADD or DEL leaves.
func TestLeftoversAreRemoved(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	w.plug("kept")
	gone := w.plugIn("gone", "/run/netns/that-is-gone")
	w.must(w.stop())
	// The container ended while the agent was away, and another interface was never recorded.
	link, err := netlink.LinkByName(gone.HostInterface)
	w.must(err)
	w.must(netlink.LinkDel(link))
	w.veth("co0123456789ab")
	w.start()
	w.ready()
	var c agentapi.Check
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c = query[agentapi.Check](w, "/v1/check", ""); c.OK {
			break
		}
	}
	if !c.OK || c.Attachments != 1 || c.Interfaces != 1 || c.Ports != 3 {
		t.Errorf("leftovers remain: %+v", c)
	}
}

// TestFlowRestoreWait has the next ovs-vswitchd hold back only where that is safe.
func TestFlowRestoreWait(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	flag := func() string {
		return strings.Trim(w.vsctl("--if-exists", "get", "open_vswitch", ".", "other_config:flow-restore-wait"), "\"")
	}
	w.start()
	w.ready()
	want := map[string]string{"netdev": "", "system": "true"}[w.ovs.Datapath]
	if got := flag(); got != want {
		t.Errorf("flow-restore-wait is %q, want %q", got, want)
	}
	w.must(w.stop())
	w.must(w.ovs.AddBridge(t.Context(), "br-other"))
	w.start()
	w.ready()
	if got := flag(); got != "" {
		t.Errorf("flow-restore-wait is %q although somebody else has a bridge", got)
	}
}
