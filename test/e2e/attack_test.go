// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/test/lab/probe"
)

// TestAttack has a hostile pod, a tenant, a stolen token and a host outside of the cluster try
// what they must not be able to do. Each case states the attacker and the attack. It fails if
// the attack works, and also if its control does not arrive: the same packet, or one like it,
// where it is allowed.
func TestAttack(t *testing.T) {
	inOrder(t, []step{
		{"encapsulation", attackEncapsulation},
		{"names of others", attackNames},
		{"policies", attackPolicies},
		{"the node", attackNode},
		{"tokens", attackTokens},
		{"fixed addresses", attackFixedAddresses},
		{"external addresses", attackExternalAddresses},
	})
}

const (
	// unheard is how long a test still waits for what must not arrive, after what follows it on the
	// same way has arrived.
	unheard = 300 * time.Millisecond
	// tries is how often an attack is sent.
	tries = 3
)

// shot sends something with a text in it, and says on which interface it would be seen.
type shot struct {
	send func(text []byte) error
	at   *probe.Wire
}

// attack is what must not arrive, and its control.
type attack struct {
	who          string // tries what
	try, control shot
}

// launch sends the controls, the attacks and the controls again, all on the same ways.
func launch(ctx context.Context, t *testing.T, attacks []attack) {
	t.Helper()
	arrive(ctx, t, attacks, "before")
	send(t, attacks)
	arrive(ctx, t, attacks, "after")
	nothing(t, attacks)
}

// send sends the attacks.
func send(t *testing.T, attacks []attack) {
	t.Helper()
	for _, a := range attacks {
		for range tries {
			if err := a.try.send(a.text("attack")); err != nil && !refusedHere(err) {
				t.Fatalf("%s: %v", a.who, err)
			}
		}
	}
}

// text is what the packets of an attack hold.
func (a attack) text(kind string) []byte { return fmt.Appendf(nil, "<%s: %s>", kind, a.who) }

// arrive sends the controls until all have arrived: the first packet on a way may wait for an
// answer to ARP, and be dropped.
func arrive(ctx context.Context, t *testing.T, attacks []attack, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	missing := func(a attack) bool { return len(a.control.at.Frames(holds(a.text(when)))) == 0 }
	err := eventually(ctx, func() error {
		var errs []error
		for _, a := range attacks {
			if missing(a) {
				errs = append(errs, fmt.Errorf("%s: %w", a.who, cmp.Or(a.control.send(a.text(when)), errMissing)))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatalf("controls %s the attacks: %v", when, err)
	}
}

var errMissing = errors.New("it does not arrive")

// nothing reports the attacks that have arrived.
func nothing(t *testing.T, attacks []attack) {
	t.Helper()
	time.Sleep(unheard)
	for _, a := range attacks {
		t.Run(a.who, func(t *testing.T) {
			if found := a.try.at.Frames(holds(a.text("attack"))); len(found) > 0 {
				t.Errorf("the attack works: a frame arrived: %x", []byte(found[0]))
			}
		})
	}
}

// refusedHere says that the sender's own kernel did not send it, as an ICMP error told it before.
func refusedHere(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES)
}

// holds matches frames with the text.
func holds(text []byte) func(probe.Frame) bool {
	return func(f probe.Frame) bool { return bytes.Contains(f, text) }
}

// wireOf listens on the first interface of a pod, for as long as the test runs.
func wireOf(t *testing.T, p place) *probe.Wire {
	t.Helper()
	return wireOn(t, p, "eth0")
}

// wireOn listens on an interface, for as long as the test runs.
func wireOn(t *testing.T, p place, ifname string) *probe.Wire {
	t.Helper()
	w, err := probe.OpenWire(p, ifname)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	t.Cleanup(w.Close)
	return w
}

// macOf is the MAC of a pod's first interface.
func macOf(t *testing.T, p place) net.HardwareAddr {
	t.Helper()
	return macOn(t, p, "eth0")
}

// macOn is the MAC of an interface.
func macOn(t *testing.T, p place, ifname string) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	err := p.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return mac
}

var routerMAC = datapath.RouterMAC.HardwareAddr()

// etherType is that of the family's packets.
func etherType(f family) uint16 {
	if f == ipv4 {
		return probe.EtherIPv4
	}
	return probe.EtherIPv6
}

// routed is a frame for the pod's router.
func routed(mac net.HardwareAddr, f family, packet []byte) probe.Frame {
	return probe.Ethernet(mac, routerMAC, etherType(f), packet)
}

// frames sends what make makes of a text.
func frames(w *probe.Wire, make func(text []byte) []probe.Frame) func([]byte) error {
	return func(text []byte) error {
		for _, f := range make(text) {
			if err := w.Send(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// frame sends one frame.
func frame(w *probe.Wire, make func(text []byte) probe.Frame) func([]byte) error {
	return frames(w, func(text []byte) []probe.Frame { return []probe.Frame{make(text)} })
}

// whole is the content that is the text itself.
func whole(text []byte) []byte { return text }

// datagram sends what content makes of a text through a socket, as any process can.
func datagram(from place, network string, to netip.AddrPort, content func(text []byte) []byte) func([]byte) error {
	return func(text []byte) error {
		address := to.String()
		if network != "udp" {
			address = to.Addr().String()
		}
		var conn net.Conn
		if err := from.Do(func() (err error) {
			conn, err = net.Dial(network, address)
			return err
		}); err != nil {
			return err
		}
		defer conn.Close()
		_, err := conn.Write(content(text))
		return err
	}
}
