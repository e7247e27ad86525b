// SPDX-License-Identifier: Apache-2.0

//go:build integration

package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNodeLoss takes one node after the other away with its wire: clients find another one in time.
func TestNodeLoss(t *testing.T) {
	s := newSegment(t, 4)
	addresses := lbAddresses(6)
	s.start(addresses)
	living := slices.Clone(s.cluster())
	for _, a := range addresses {
		if got, want := s.seenBy(a), s.ownerOf(a, living).mac(); got != want {
			// The first question is still on its way.
			eventually(t, "the owner answers", 3*time.Second, func() bool { return s.seenBy(a) == want })
		}
	}
	for len(living) > 1 {
		a := addresses[0]
		lost := s.ownerOf(a, living)
		run(t, strings.Replace("ip link set nodeX down", "nodeX", strings.Replace(lost.peer.Name, "node", "port", 1), 1))
		start := time.Now()
		living = slices.DeleteFunc(living, func(n *node) bool { return n == lost })
		s.settled(addresses, living, 5*time.Second)
		moved := time.Since(start)
		next := s.ownerOf(a, living)
		eventually(t, "the client sends to the new owner", 5*time.Second-moved, func() bool { return s.seenBy(a) == next.mac() })
		t.Logf("%s is gone: its addresses are others' after %v, the client knows after %v", lost.peer.Name, moved, time.Since(start))
		if time.Since(start) > 5*time.Second {
			t.Errorf("the client knows after %v", time.Since(start))
		}
	}
}

// TestAgentRestart has the kernel go on while its agent is away, and all clients send to the right
// node when it is back.
func TestAgentRestart(t *testing.T) {
	s := newSegment(t, 3)
	addresses := lbAddresses(3)
	s.start(addresses)
	a := addresses[0]
	owner := s.ownerOf(a, s.cluster())
	before := owner.answers()
	owner.kill()
	others := slices.DeleteFunc(slices.Clone(s.cluster()), func(n *node) bool { return n == owner })
	s.settled(addresses, others, 5*time.Second)
	if now := owner.answers(); now != before {
		t.Errorf("without its agent the kernel answers for %q, before for %q", now, before)
	}
	eventually(t, "clients use the others", 3*time.Second, func() bool { return s.seenBy(a) == s.ownerOf(a, others).mac() })
	owner.start()
	owner.set(s.desired(addresses))
	s.settled(addresses, s.cluster(), 5*time.Second)
	for _, a := range addresses {
		eventually(t, fmt.Sprintf("clients send to the owner of %s again", a), 5*time.Second, func() bool {
			return s.seenBy(a) == s.ownerOf(a, s.cluster()).mac()
		})
	}
	if owner.said("gained " + a.String()) {
		t.Errorf("the agent that started again gained what it had: %v", owner.lines)
	}
}

// TestHalves are two parts of a cluster that cannot reach each other for a while.
func TestHalves(t *testing.T) {
	s := newSegment(t, 3)
	addresses := lbAddresses(3)
	s.start(addresses)
	lost := s.cluster()[0]
	run(t, "ip link set "+lost.cable()+" down")
	s.settled(addresses, s.cluster()[1:], 5*time.Second)
	s.settled(addresses, s.cluster()[:1], 5*time.Second)
	run(t, "ip link set "+lost.cable()+" up")
	took := s.settled(addresses, s.cluster(), 15*time.Second)
	t.Logf("one cluster again after %v", took)
	for _, a := range addresses {
		eventually(t, "clients send to the owner again", 5*time.Second, func() bool { return s.seenBy(a) == s.ownerOf(a, s.cluster()).mac() })
	}
}

// TestWhoMay has addresses that some, or none, of the nodes may answer for, and then
// no addresses at all.
func TestWhoMay(t *testing.T) {
	s := newSegment(t, 3)
	addresses := lbAddresses(1)
	strange := "192.168.70.250"
	run(t, "ip -n ann1 neigh add proxy "+strange+" dev up0")
	run(t, "ip -n ann1 neigh add proxy 192.168.70.251 dev up0 protocol 206")
	for _, n := range s.cluster() {
		n.start()
		n.set(s.desired(nil))
	}
	// What carries Coelan's number and is no address any more goes; what does
	// not is another program's.
	eventually(t, "leftovers go", 3*time.Second, func() bool { return s.nodes[1].answers() == strange })
	listening := func(n *node) bool {
		return strings.Contains(run(t, "ip netns exec "+n.namespace()+" ss -Hlntu"), fmt.Sprint(testPort))
	}
	if listening(s.nodes[0]) {
		t.Error("an agent listens although there is nothing to announce")
	}
	d := s.desired(addresses)
	d.Addresses[0].Nodes, d.Addresses[1].Nodes = []string{"node2"}, []string{"somebody else"}
	for _, n := range s.cluster() {
		n.set(d)
	}
	eventually(t, "the only one that may answers", 5*time.Second, func() bool { return s.nodes[2].answers() == addresses[0].String() })
	for i, want := range []string{"", strange, addresses[0].String()} {
		if got := s.nodes[i].answers(); got != want {
			t.Errorf("node%d answers for %q, want %q", i, got, want)
		}
	}
	if !s.nodes[2].said("gained " + addresses[0].String()) {
		t.Errorf("node2 said %v", s.nodes[2].lines)
	}
	for _, n := range s.cluster() {
		n.set(s.desired(nil))
	}
	eventually(t, "nobody answers", 3*time.Second, func() bool { return s.nodes[2].answers() == "" })
	eventually(t, "nobody listens", 3*time.Second, func() bool { return !slices.ContainsFunc(s.cluster(), listening) })
	if !s.nodes[2].said("lost " + addresses[0].String()) {
		t.Errorf("node2 said %v", s.nodes[2].lines)
	}
}

// TestInterfaceMadeAnew has the kernel answer again on an interface that came
// back with its addresses.
func TestInterfaceMadeAnew(t *testing.T) {
	s := newSegment(t, 1)
	addresses := lbAddresses(2)
	s.start(addresses)
	n := s.nodes[0]
	run(t, "ip link del "+n.cable())
	run(t, "ip link add "+n.cable()+" type veth peer name up0 netns "+n.namespace())
	run(t, "ip link set "+n.cable()+" master wire up")
	run(t, "ip -n "+n.namespace()+" link set up0 up")
	if got := n.answers(); got != "" {
		t.Fatalf("a new interface answers for %q", got)
	}
	run(t, "ip -n "+n.namespace()+" addr add "+n.peer.Addr.String()+"/24 dev up0")
	run(t, "ip -n "+n.namespace()+" addr add fd70::1/64 dev up0 nodad")
	s.settled(addresses, s.cluster(), 3*time.Second)
	eventually(t, "clients hear of the new MAC", 3*time.Second, func() bool { return s.seenBy(addresses[0]) == n.mac() })
}

// TestBridgeAnswers has one node be chosen for an address that its bridge answers for: no kernel
// does, and an agent that starts again knows the address.
func TestBridgeAnswers(t *testing.T) {
	s := newSegment(t, 2)
	all := lbAddresses(2) // the first two are for bridges
	desired := func(bridged int) Desired {
		d := s.desired(all)
		for i := range d.Addresses {
			d.Addresses[i].Bridge = i < bridged
		}
		return d
	}
	begin := func(n *node) {
		n.start()
		n.set(desired(2))
	}
	chosenBy := func(n *node, living []*node) (own []netip.Addr) {
		for _, a := range all[:2] {
			if s.ownerOf(a, living) == n {
				own = append(own, a)
			}
		}
		return own
	}
	on := func(n *node, dev string) string { return run(t, "ip -n "+n.namespace()+" neigh show proxy dev "+dev) }
	for _, n := range s.cluster() {
		for _, a := range all {
			run(t, fmt.Sprintf("ip -n %s route add %s dev %s", n.namespace(), a, gateway))
		}
		begin(n)
	}
	s.settled(all, s.cluster(), 10*time.Second)
	for _, n := range s.cluster() {
		own := chosenBy(n, s.cluster())
		eventually(t, n.peer.Name+" knows what it is chosen for", 3*time.Second, func() bool { return n.lastChosen() == fmt.Sprint(own) })
		for _, a := range all[:2] {
			if strings.Contains(on(n, "up0"), a.String()) || strings.Contains(on(n, gateway), a.String()) != slices.Contains(own, a) {
				t.Errorf("%s: entries of up0 %q and of %s %q, chosen for %v", n.peer.Name, on(n, "up0"), gateway, on(n, gateway), own)
			}
		}
		for _, a := range all[2:] {
			if strings.Contains(on(n, gateway), a.String()) {
				t.Errorf("%s: the bridge is to answer for %s", n.peer.Name, a)
			}
		}
	}
	for _, a := range all[:2] {
		s.seenBy(a) // whatever answers has done so before the controls
	}
	for _, a := range all[2:] { // the control
		eventually(t, fmt.Sprint("a kernel answers for ", a), 3*time.Second, func() bool { return s.seenBy(a) != "" })
	}
	for _, a := range all[:2] {
		if mac := s.seenBy(a); mac != "" {
			t.Errorf("a kernel answers for %s with %s", a, mac)
		}
	}

	owner := s.ownerOf(all[0], s.cluster())
	other := s.cluster()[1-slices.Index(s.cluster(), owner)]
	owner.kill()
	var found []netip.Addr
	in(t, owner.namespace(), func() {
		var err error
		found, err = Chosen(gateway)
		must(t, err)
	})
	slices.SortFunc(found, netip.Addr.Compare)
	if want := chosenBy(owner, s.cluster()); !slices.Equal(found, want) {
		t.Errorf("an agent that starts again finds %v, want %v", found, want)
	}
	eventually(t, "the other node takes over", 5*time.Second, func() bool { return other.lastChosen() == fmt.Sprint(all[:2]) })
	begin(owner)
	eventually(t, "and gives back", 10*time.Second, func() bool { return other.lastChosen() == fmt.Sprint(chosenBy(other, s.cluster())) })
	if owner.said("gained " + all[0].String()) {
		t.Errorf("the agent that started again gained what it had: %v", owner.lines)
	}

	for _, n := range s.cluster() {
		n.set(desired(0))
	}
	eventually(t, "the kernel answers in place of the bridge", 5*time.Second, func() bool { return s.seenBy(all[0]) == owner.mac() })
	if owner.lastChosen() != "[]" || on(owner, gateway) != "" {
		t.Errorf("chosen for %s, entries %q, with no address for bridges", owner.lastChosen(), on(owner, gateway))
	}
}

// TestChosenWithoutGateway finds nothing where no agent has made the interface to the pods.
func TestChosenWithoutGateway(t *testing.T) {
	if found, err := Chosen("none0"); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestRemove(t *testing.T) {
	run(t, "ip link add up0 type veth peer name x")
	defer run(t, "ip link del up0")
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		run(t, "ip neigh add proxy "+a+" dev up0 protocol 206")
	}
	run(t, "ip neigh add proxy 192.0.2.2 dev up0")
	must(t, Remove())
	if got := strings.Fields(run(t, "ip neigh show proxy")); len(got) < 1 || got[0] != "192.0.2.2" || slices.Contains(got, "192.0.2.1") || slices.Contains(got, "2001:db8::1") {
		t.Errorf("left: %v", got)
	}
	must(t, Remove())
}
