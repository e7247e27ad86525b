// SPDX-License-Identifier: Apache-2.0

//go:build integration

package announce

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOlderAgents rolls out agents with a key where all had none: each kind has an owner for each
// address, so that no address is without one, and in the end there is one.
func TestOlderAgents(t *testing.T) {
	s := newSegment(t, 3)
	for _, n := range s.cluster() {
		n.older = true
	}
	addresses := lbAddresses(3)
	s.start(addresses)
	for i, n := range s.cluster() {
		n.kill()
		n.older = false
		n.start()
		n.set(s.desired(addresses))
		s.settled(addresses, s.cluster()[:i+1], 10*time.Second)
		if left := s.cluster()[i+1:]; len(left) > 0 {
			s.settled(addresses, left, 10*time.Second)
		}
	}
}

// TestNoKey has a node wait for a key: it does not listen, and its kernel answers for what it
// answered for before.
func TestNoKey(t *testing.T) {
	s := newSegment(t, 2)
	addresses := lbAddresses(2)
	waiting := s.nodes[0]
	before := addresses[0].String()
	run(t, "ip -n "+waiting.namespace()+" neigh add proxy "+before+" dev up0 protocol 206")
	waiting.keys = nil
	waiting.start()
	waiting.set(s.desired(addresses))
	eventually(t, "it says what it waits for", 10*time.Second, func() bool { return waiting.logged("it has no memberlist key") == 1 })
	if out := run(t, "ip netns exec "+waiting.namespace()+" ss -Hlntu"); strings.Contains(out, fmt.Sprint(testPort)) {
		t.Errorf("a node without a key listens: %s", out)
	}
	if got := waiting.answers(); got != before {
		t.Errorf("a node without a key answers for %q, want %q", got, before)
	}
	other := s.nodes[1]
	other.start()
	other.set(s.desired(addresses))
	s.settled(addresses, []*node{other}, 10*time.Second)
	waiting.keys = [][]byte{keyA}
	waiting.write(input{nil, waiting.keys})
	s.settled(addresses, s.cluster(), 15*time.Second)
}

// TestRotation changes the keys node by node while the membership works. No node is lost meanwhile,
// but one that has another key and no old one.
func TestRotation(t *testing.T) {
	s := newSegment(t, 3)
	addresses := lbAddresses(3)
	s.start(addresses)
	gone := func() (count int) {
		for _, n := range s.cluster() {
			count += n.logged("node left the memberlist")
		}
		return count
	}
	before := gone()
	for _, keys := range [][][]byte{{keyA, keyB}, {keyB, keyA}, {keyB}} {
		for i, n := range s.cluster() {
			n.setKeys(keys...)
			if i < len(s.cluster())-1 { // the others have the keys of before
				// Several probes: a node that does not answer them is gone after 1.5 s.
				time.Sleep(2 * time.Second)
			}
		}
	}
	if n := gone() - before; n != 0 {
		t.Errorf("%d times a node was lost", n)
	}
	s.settled(addresses, s.cluster(), 10*time.Second)
	lost := s.nodes[0]
	lost.setKeys(keyC)
	s.settled(addresses, s.cluster()[1:], 15*time.Second)
	s.settled(addresses, s.cluster()[:1], 15*time.Second)
	lost.setKeys(keyC, keyB)
	lost.setKeys(keyB)
	s.settled(addresses, s.cluster(), 15*time.Second)
}

// forged says that a node is dead or suspected, in a way that it cannot refute: its next
// incarnation would be 0.
func forged(kind byte, node string) []byte {
	text := func(s string) []byte { return append([]byte{0xa0 | byte(len(s))}, s...) }
	return slices.Concat([]byte{kind, 0x83}, text("From"), text(node), text("Incarnation"), []byte{0xce, 0xff, 0xff, 0xff, 0xff},
		text("Node"), text(node))
}

// The kinds of messages of memberlist.
const (
	suspectMessage = 3
	deadMessage    = 5
	labelMessage   = 244
)

// send has the client send a datagram to a node.
func (s *segment) send(to *node, datagram []byte) {
	s.t.Helper()
	in(s.t, s.nodes[len(s.nodes)-1].namespace(), func() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.peer.Addr, testPort)))
		must(s.t, err)
		defer c.Close()
		_, err = c.Write(datagram)
		must(s.t, err)
	})
}

// TestForgedDeath has a stranger say that a node is dead: nodes without a key believe it, those
// with a key do not.
func TestForgedDeath(t *testing.T) {
	for _, tc := range []struct {
		name  string
		older bool
	}{{"without a key", true}, {"with a key", false}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSegment(t, 3)
			addresses := lbAddresses(3)
			for _, n := range s.cluster() {
				n.older = tc.older
			}
			s.start(addresses)
			told, victim := s.nodes[0], s.nodes[1]
			before := told.logged("node left the memberlist")
			if tc.older {
				// Again and again: a node that receives it may receive the victim's answer
				// at the same time.
				eventually(t, "the stranger is believed", 20*time.Second, func() bool {
					s.send(told, forged(deadMessage, victim.peer.Name))
					return told.logged("node left the memberlist") > before
				})
				return
			}
			label := func(b []byte) []byte {
				return slices.Concat([]byte{labelMessage, byte(len("coelan"))}, []byte("coelan"), b)
			}
			for _, kind := range []byte{deadMessage, suspectMessage} {
				for _, tc := range []struct {
					datagram []byte
					refused  string
				}{
					{forged(kind, victim.peer.Name), "unacceptable label"},
					{label(forged(kind, victim.peer.Name)), "Decrypt packet failed"},
				} {
					refused := told.logged(tc.refused)
					eventually(t, "the datagram is refused: "+tc.refused, 10*time.Second, func() bool {
						s.send(told, tc.datagram)
						return told.logged(tc.refused) > refused
					})
				}
			}
			// As long as a suspicion would take.
			time.Sleep(3 * time.Second)
			if n := told.logged("node left the memberlist") - before; n != 0 {
				t.Errorf("%d times a node was lost", n)
			}
			s.settled(addresses, s.cluster(), time.Second)
		})
	}
}

// TestStranger has a host without a key refused, with any message.
func TestStranger(t *testing.T) {
	s := newSegment(t, 3)
	addresses := lbAddresses(3)
	// The first two do not know the third, which knows them.
	d := s.desired(addresses)
	known := Desired{Addresses: d.Addresses, Peers: d.Peers[:2]}
	for i, n := range s.cluster() {
		n.start()
		if i < 2 {
			n.set(known)
		} else {
			n.set(d)
		}
	}
	s.settled(addresses, s.cluster()[:2], 10*time.Second)
	time.Sleep(time.Second)
	s.settled(addresses, s.cluster()[:2], time.Second)
	for _, n := range s.cluster() {
		n.set(d)
	}
	s.settled(addresses, s.cluster(), 10*time.Second)
}
