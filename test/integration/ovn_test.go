// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// management are a node's own addresses.
func management(n *lab.Node) (addresses []netip.Addr) {
	for _, p := range n.PodCIDRs {
		if a, ok := names.ManagementAddress(p); ok {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// newOVNWorld is a world with the backend ovn, and no pods yet.
func newOVNWorld(t *testing.T) *world {
	t.Helper()
	l := lab.New(t, lab.Options{OVN: true})
	return &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
}

// addPods makes the pods of a world, and waits until they reach each other.
func (w *world) addPods(t *testing.T) {
	t.Helper()
	w.newPods(t)
	w.connected(t)
}

// newPods makes the pods of a world.
func (w *world) newPods(t *testing.T) {
	t.Helper()
	for _, p := range []struct {
		pod  **lab.Pod
		node *lab.Node
		name string
	}{{&w.a, w.n1, "a"}, {&w.b, w.n1, "b"}, {&w.d, w.n1, "d"}, {&w.c, w.n2, "c"}} {
		var err error
		*p.pod, err = p.node.AddPod(t.Context(), p.name)
		must(t, err)
	}
}

// connected waits until a pod reaches another node. The userspace datapath looks for that by the
// first packet there, which is lost.
func (w *world) connected(t *testing.T) {
	t.Helper()
	var last error
	poll(t.Context(), t, func() bool {
		p := probe.Ping{Dst: w.c.Address(lab.IPv4), Count: 1}
		r, err := p.Run(t.Context(), w.a.Host)
		last = err
		return err == nil && r.Lost() == 0
	}, func() { t.Errorf("the other node is not reached: %v", last) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// of is the address of a family in a list.
func of(addresses []netip.Addr) func(lab.Family) netip.Addr {
	return func(f lab.Family) netip.Addr {
		for _, a := range addresses {
			if lab.FamilyOf(a) == f {
				return a
			}
		}
		return netip.Addr{}
	}
}

// configuration is what an Open vSwitch is told, as its database has it, and how often it was.
func configuration(t *testing.T, n *lab.Node) string {
	t.Helper()
	var all []string
	for _, args := range [][]string{
		{"get", "open_vswitch", ".", "next_cfg", "external_ids", "other_config"},
		{"--columns=_uuid,name,external_ids,options,ofport,mac", "list", "interface"},
	} {
		out, err := n.OVS.Vsctl(t.Context(), args...)
		must(t, err)
		all = append(all, out)
	}
	return strings.Join(all, "\n")
}

// Pods reach each other, their node by the management port, and the world, whichever node they are
// on. CHECK agrees, and so does the agent.
func TestOVNReach(t *testing.T) {
	w := newOVNWorld(t)
	w.addPods(t)
	own, other := of(management(w.n1)), of(management(w.n2))
	for _, p := range []path{
		{"pod to pod on its node", w.a.Host, w.b.Host, w.b.Address, w.a.Address},
		{"pod to pod on another node", w.a.Host, w.c.Host, w.c.Address, w.a.Address},
		{"pod back to pod on another node", w.c.Host, w.a.Host, w.a.Address, w.c.Address},
		{"pod to its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address},
		{"pod to its node's management address", w.a.Host, w.n1.Host, own, w.a.Address},
		{"pod to another node's management address", w.a.Host, w.n2.Host, other, w.a.Address},
		{"pod to another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address},
		{"node to its pod", w.n1.Host, w.a.Host, w.a.Address, own},
		{"node to pod on another node", w.n1.Host, w.c.Host, w.c.Address, own},
		{"pod to the nodes' segment", w.a.Host, w.Outside, w.Outside.Address, w.n1.Address},
		{"pod to the internet", w.a.Host, w.Outside, lab.Internet, w.n1.Address},
	} {
		for f := range lab.Dual.Each {
			t.Run(p.name+" "+f.String(), func(t *testing.T) {
				if err := probePath(t.Context(), p, f); err != nil {
					t.Error(err)
				}
			})
		}
	}
	// OVN's Geneve has an option: 58 bytes of an Ethernet's 1500. ICMP and IP have headers of 28.
	const largest = 1500 - 58 - 28
	for _, dst := range []netip.Addr{w.c.Address(lab.IPv4), w.n1.Address(lab.IPv4)} {
		if r := ping(t, w.a.Host, probe.Ping{Dst: dst, Size: largest, Count: 2}); r.Lost() > 0 {
			t.Errorf("packets of the pods' MTU to %s: %+v", dst, r)
		}
		r, err := (&probe.Ping{Dst: dst, Size: largest + 1}).Run(t.Context(), w.a.Host)
		if err == nil && r.SendError == nil {
			t.Errorf("a pod sends larger packets than its MTU to %s", dst)
		}
	}
	for _, p := range []*lab.Pod{w.a, w.b, w.c, w.d} {
		if err := p.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, n := range w.Nodes {
		if err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An agent that is killed and starts anew writes nothing, and no packet is lost.
func TestOVNAgentRestarts(t *testing.T) {
	w := newOVNWorld(t)
	w.addPods(t)
	before := configuration(t, w.n1)
	tr := startTraffic(t.Context(), t, w)
	w.n1.KillAgent()
	must(t, w.n1.StartAgent(t.Context()))
	must(t, w.n1.Check(t.Context()))
	for name, o := range tr.stop(t) {
		if len(o.Lost) > 0 {
			t.Errorf("%s: %s", name, o.UDPReport)
		}
	}
	if after := configuration(t, w.n1); after != before {
		t.Errorf("the database of Open vSwitch was\n%s\nand is\n%s", before, after)
	}
	var status agentapi.Status
	must(t, w.n1.Query(t.Context(), "/v1/status", &status))
	if status.Host.Changes != 0 {
		t.Errorf("%d writes to the kernel", status.Host.Changes)
	}
}

// What a pod had is gone after its DEL: interface, Port, row; a pod that the agent has missed the
// end of is swept, and interfaces of others stay.
func TestOVNDelLeavesNothing(t *testing.T) {
	w := newOVNWorld(t)
	before, err := w.n1.OVS.Vsctl(t.Context(), "list-ports", "br-int")
	must(t, err)
	_, err = w.OVN.Nbctl(t.Context(), "lsp-add", names.Cluster("").Switch("default", "n1"), "other/vm", "--", "lsp-set-addresses",
		"other/vm", "unknown")
	must(t, err)
	vm, err := w.n1.AddGuest(t.Context(), "vm", "other/vm", []byte{0x0a, 0, 0, 0, 0, 9}, w.n1.PodCIDRs[:0])
	must(t, err)
	pod, err := w.n1.AddPod(t.Context(), "gone")
	must(t, err)
	must(t, pod.Delete(t.Context()))
	poll(t.Context(), t, func() bool { return len(w.API.Ports()) == 0 }, func() { t.Errorf("Ports %v", w.API.Ports()) })
	left := func() string {
		out, err := w.n1.OVS.Vsctl(t.Context(), "list-ports", "br-int")
		must(t, err)
		return out
	}
	want := strings.Fields(before + " " + vm.Port)
	slices.Sort(want)
	same := func() bool {
		got := strings.Fields(left())
		slices.Sort(got)
		return slices.Equal(got, want)
	}
	if !same() {
		t.Errorf("ports %s, want %v", left(), want)
	}

	w.n1.KillAgent()
	_, err = w.n1.OVS.Vsctl(t.Context(), "add-port", "br-int", "co-left", "--", "set", "interface", "co-left",
		"type=internal", "external_ids:coelan-owner=coelan", "external_ids:iface-id=lab/left.eth0")
	must(t, err)
	must(t, w.n1.StartAgent(t.Context()))
	poll(t.Context(), t, same, func() { t.Errorf("ports %s, want %v", left(), want) })
}

// A pod fails in bounded time if the northbound database lacks its port, as without a controller,
// with an error that says so, and leaves nothing. It comes once there is one.
func TestOVNPortIsMissing(t *testing.T) {
	w := newOVNWorld(t)
	w.OVN.Stop()
	_, err := w.n1.AddPod(t.Context(), "lost")
	if err == nil || !strings.Contains(err.Error(), "OVN has not connected the port lab/lost.eth0") {
		t.Errorf("error %v", err)
	}
	poll(t.Context(), t, func() bool { return len(w.API.Ports()) == 0 }, func() { t.Errorf("Ports %v", w.API.Ports()) })
	must(t, w.n1.Check(t.Context()))
	must(t, w.OVN.Resume())
	_, err = w.n1.AddPod(t.Context(), "found")
	must(t, err)
}

// Without ovn-controller running pods go on, and new ones wait until it is back.
func TestOVNControllerIsKilled(t *testing.T) {
	w := newOVNWorld(t)
	w.addPods(t)
	// Else it clears all flows when it starts, before it has computed any (ovn-controller(8)).
	_, err := w.n1.OVS.Vsctl(t.Context(), "set", "open_vswitch", ".", "external_ids:ovn-ofctrl-wait-before-clear=3000")
	must(t, err)
	tr := startTraffic(t.Context(), t, w)
	w.n1.KillOVNController()
	late := make(chan error, 1)
	var pod *lab.Pod
	go func() {
		var err error
		pod, err = w.n1.AddPod(t.Context(), "late")
		late <- err
	}()
	poll(t.Context(), t, func() bool {
		return slices.ContainsFunc(w.API.Ports(), func(p *v1alpha1.Port) bool { return p.Name == "late.eth0" })
	}, func() { t.Error("the late pod has no Port") })
	must(t, w.n1.StartOVNController())
	must(t, <-late)
	for name, o := range tr.stop(t) {
		if len(o.Lost) > 0 {
			t.Errorf("%s: %s", name, o.UDPReport)
		}
	}
	if r := ping(t, pod.Host, probe.Ping{Dst: w.b.Address(lab.IPv4), Count: 3}); r.Lost() > 0 {
		t.Errorf("the late pod has lost %d of %d", r.Lost(), r.Sent)
	}
}

// No pod gets the node's own address, the last one of its range.
func TestOVNManagementAddressIsNotAPods(t *testing.T) {
	l := lab.New(t, lab.Options{OVN: true, Nodes: 1, Families: lab.IPv4,
		PodCIDRs: func(int) []string { return []string{"10.244.1.0/29"} }})
	n := l.Nodes[0]
	var got []string
	for i := range 4 {
		p, err := n.AddPod(t.Context(), fmt.Sprint("p", i))
		must(t, err)
		got = append(got, p.Address(lab.IPv4).String())
	}
	if want := []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"}; !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	if _, err := n.AddPod(t.Context(), "more"); err == nil {
		t.Error("a pod got the node's own address")
	}
}
