// SPDX-License-Identifier: Apache-2.0

package podleases

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/packet"
)

// lan is a physical network with a DHCP server, which gives one address for a minute, and a node.
type lan struct {
	*Leases
	t     *testing.T
	store *attachment.Store

	mu       sync.Mutex
	away     bool // the server answers nothing
	refuses  bool // it answers requests by NAK
	received []dhcpv4.MessageType
	withheld []attachment.Key
	events   []string
	leases   []backend.Lease
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l := &lan{t: t, store: store}
	l.start()
	return l
}

// start runs Leases until the function that it returns is called, or the test ends.
func (l *lan) start() (stop func()) {
	l.t.Helper()
	var err error
	l.Leases, err = New(Options{
		Log: slog.New(slog.DiscardHandler), Store: l.store, Send: l.serve, Events: l,
		Servers: func(network, port string) (which, problem string) {
			return "DHCP server of " + network, "it does not know " + port
		},
		Withheld: func(k attachment.Key) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.withheld = append(l.withheld, k)
		},
		Leased: func(n backend.Lease) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.leases = append(l.leases, n)
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	leases := l.Leases
	go func() { ended <- leases.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(stop)
	return stop
}

func (l *lan) PodWarning(_, name, _, reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, name+" "+reason+": "+message)
}

var given = netip.MustParsePrefix("192.0.2.50/24")

// serve is the server.
func (l *lan) serve(_ context.Context, network, port string, frame []byte) error {
	p, _ := packet.Parse(frame)
	_, _, data, _ := p.Datagram()
	q, err := dhcpv4.FromBytes(data)
	if err != nil || network != "lan" || port != "shop/web.net1" {
		return errors.New("not a message")
	}
	l.mu.Lock()
	l.received = append(l.received, q.MessageType())
	away, refuses := l.away, l.refuses
	l.mu.Unlock()
	answer := map[dhcpv4.MessageType]dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover: dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeRequest: dhcpv4.MessageTypeAck,
	}[q.MessageType()]
	if away || answer == 0 {
		return nil
	}
	if refuses {
		answer = dhcpv4.MessageTypeNak
	}
	server := netip.MustParseAddr("192.0.2.1")
	m, err := dhcpv4.NewReplyFromRequest(q, dhcpv4.WithMessageType(answer), dhcpv4.WithServerIP(server.AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())), dhcpv4.WithLeaseTime(60),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithYourIP(given.Addr().AsSlice()))
	if err != nil {
		return err
	}
	datagram := packet.UDPFrom(netip.AddrPortFrom(server, 67), netip.AddrPortFrom(given.Addr(), 68), m.ToBytes())
	ip := packet.Header{Source: server, Destination: given.Addr(), Protocol: packet.UDP, HopLimit: 64}.Packet(datagram)
	go l.Received(network, packet.Ethernet(frame[6:12], net.HardwareAddr{2, 0, 0, 0, 0, 9}, ip.Type(), ip))
	return nil
}

// set changes the server.
func (l *lan) set(away, refuses bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.refuses, l.received = away, refuses, nil
}

func (l *lan) count(of dhcpv4.MessageType) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.received {
		if t == of {
			n++
		}
	}
	return n
}

var web = attachment.Spec{
	Key: attachment.Key{ContainerID: "c1", IfName: "net1"}, PodNamespace: "shop", PodName: "web", PodUID: "u1",
	NetworkName: "lan", BlockSpace: true, Leased: true,
}

// attach obtains a lease for the pod web, and records the attachment.
func (l *lan) attach() attachment.Attachment {
	l.t.Helper()
	p := attachment.Plan{Spec: web}
	lease, err := l.Obtain(l.t.Context(), p)
	if err != nil || lease.Address != given {
		l.t.Fatalf("it has %v, %v", lease.Address, err)
	}
	p.Addresses = []netip.Addr{lease.Address.Addr()}
	at, err := l.store.Allocate(p)
	if err != nil {
		l.t.Fatal(err)
	}
	return at
}

func TestLifeOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		at := l.attach()
		if l.Withholds(at) {
			t.Error("the pod may not use its address")
		}
		l.set(false, false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := l.count(dhcpv4.MessageTypeRequest); n < 18 || l.Withholds(at) || len(l.events) > 0 {
			t.Errorf("renewed %d times in ten minutes, withheld %t, events %q", n, l.Withholds(at), l.events)
		}
		if n := len(l.leases); n < 19 || l.leases[0].Addresses[0] != given.Addr() || l.leases[0].Duration != time.Minute {
			t.Errorf("%d leases are shown: %+v", n, l.leases)
		}
		l.Release(t.Context(), at.Key)
		if l.count(dhcpv4.MessageTypeRelease) != 1 || len(l.store.Objects(kindLease)) != 0 {
			t.Errorf("released %d times, stored %v", l.count(dhcpv4.MessageTypeRelease), l.store.Objects(kindLease))
		}
		l.set(false, false)
		time.Sleep(10 * time.Minute)
		if len(l.received) > 0 {
			t.Errorf("after its end it asks %v", l.received)
		}
	})
}

func TestNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		l.set(true, false)
		began := time.Now()
		_, err := l.Obtain(t.Context(), attachment.Plan{Spec: web})
		var plan *cni.PlanError
		if !errors.As(err, &plan) || !plan.Retry || plan.Message !=
			"interface net1 on Network lan: no DHCP server of lan answered within 10s: it does not know shop/web.net1" {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d != obtainTimeout {
			t.Errorf("it waited for %v", d)
		}
	})
}

// A lost lease is said, keeps the pod from using the address, and is asked for until it is there.
func TestLostLease(t *testing.T) {
	for name, tc := range map[string]struct {
		away, refuses bool
		want          string
	}{
		"refused": {refuses: true, want: "refuses to renew"},
		"expired": {away: true, want: "has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLAN(t)
				at := l.attach()
				l.set(tc.away, tc.refuses)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if !l.Withholds(at) || len(l.withheld) != 1 || len(l.events) != 1 || !strings.Contains(l.events[0], tc.want) ||
					!strings.HasPrefix(l.events[0], "web NoDHCPLease: interface net1 on Network lan may not use its address 192.0.2.50") {
					t.Errorf("withheld %t %v, events %q", l.Withholds(at), l.withheld, l.events)
				}
				if last := l.leases[len(l.leases)-1]; len(last.Addresses) > 0 {
					t.Errorf("shown is %v", last.Addresses)
				}
				l.set(false, false)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if l.Withholds(at) || len(l.withheld) != 2 {
					t.Errorf("the server is back: withheld %t %v", l.Withholds(at), l.withheld)
				}
			})
		})
	}
}

// An agent that starts anew goes on with what is stored: the lease if it is valid, and else a new
// one of the same address.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		at := l.attach()
		l.Leases = nil
		stop := l.start()
		if l.Withholds(at) {
			t.Error("a lease that is valid is lost")
		}
		l.set(false, false)
		time.Sleep(45 * time.Second)
		synctest.Wait()
		if l.count(dhcpv4.MessageTypeRequest) == 0 || l.count(dhcpv4.MessageTypeDiscover) > 0 {
			t.Errorf("it asked %v", l.received)
		}
		stop()
		l.set(true, false)
		time.Sleep(10 * time.Minute)
		l.start()
		if !l.Withholds(at) {
			t.Error("a lease that has expired meanwhile is used")
		}
		l.set(false, false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if l.Withholds(at) {
			t.Error("the address is not had again")
		}
	})
}

// The lease of a pod that is gone is forgotten.
func TestGoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		if _, err := l.Obtain(t.Context(), attachment.Plan{Spec: web}); err != nil {
			t.Fatal(err)
		}
		l.start()
		if len(l.interfaces) > 0 || len(l.store.Objects(kindLease)) > 0 {
			t.Errorf("known %v, stored %v", l.interfaces, l.store.Objects(kindLease))
		}
	})
}

// What is not an answer, or one for others, is left alone.
func TestReceivedForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		at := l.attach()
		frame := client.New(client.Config{MAC: net.HardwareAddr{1, 2, 3, 4, 5, 6}, XID: xid}).Tick(time.Now()).Frame
		l.Received("lan", frame)
		l.Received("lan", nil)
		if l.Withholds(at) {
			t.Error("the lease is lost")
		}
	})
}

// A backend that cannot ask servers gives no lease, at once, and says why.
func TestBackendCannotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN(t)
		l.Send = nil
		began := time.Now()
		_, err := l.Obtain(t.Context(), attachment.Plan{Spec: web})
		if err == nil || !strings.Contains(err.Error(), "interface net1: Network lan has ipam DHCP") || time.Now() != began {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if !l.Withholds(attachment.Attachment{Spec: web}) {
			t.Error("the pod may use an address")
		}
	})
}
