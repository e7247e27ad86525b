// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// echoLine asks for a line back.
func echoLine(c net.Conn, in *bufio.Reader, line string, wait time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err
	}
	for {
		switch heard, err := in.ReadString('\n'); {
		case err != nil:
			return err
		case heard == line+"\n":
			return nil
		}
	}
}

// associates says whether a server answers to SCTP.
func associates(from probe.Netns, at netip.AddrPort, wanted bool) func(context.Context) error {
	return func(ctx context.Context) error {
		wait := time.Second
		if wanted {
			wait = 5 * time.Second
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		c, err := probe.DialSCTP(ctx, from, at)
		if err == nil {
			defer c.Close()
			err = echoLine(c, bufio.NewReader(c), "coelan", wait)
		}
		switch {
		case !wanted && err == nil:
			return fmt.Errorf("%s answers to SCTP", at)
		case wanted:
			return err
		}
		return nil
	}
}

// Policies tell ports of SCTP apart, and stop associations that there are. It needs
// a kernel with SCTP.
func TestPolicySCTP(t *testing.T) {
	if !probe.HasSCTP() {
		t.Skip("the kernel has no SCTP")
	}
	w, b := policed(t, lab.Options{Configure: nativeServices})
	for f := range lab.Dual.Each {
		for _, p := range []*lab.Pod{w.b, w.c} {
			for port := uint16(8080); port <= 8081; port++ {
				s, err := probe.ServeSCTP(p, netip.AddrPortFrom(p.Address(f), port), probe.Echo)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
			}
		}
	}
	b.publish(t)
	sctp := []intent.PortRange{{Protocol: uint8(intent.SCTP), First: 8080, Last: 8080}}
	for f := range lab.Dual.Each {
		for _, server := range []*lab.Pod{w.b, w.c} { // on the client's node, and on another one
			at, other := netip.AddrPortFrom(server.Address(f), 8080), netip.AddrPortFrom(server.Address(f), 8081)
			t.Run(f.String()+"/"+server.Name, func(t *testing.T) {
				b.open(server)
				b.publish(t)
				becomes(t, "open", associates(w.a, at, true))
				becomes(t, "open, the other port", associates(w.a, other, true))
				live, err := probe.DialSCTP(t.Context(), w.a, other)
				if err != nil {
					t.Fatal(err)
				}
				defer live.Close()
				in := bufio.NewReader(live)
				if err := echoLine(live, in, "open", 5*time.Second); err != nil {
					t.Fatal(err)
				}

				b.isolate(server, intent.Ingress, intent.Rule{Groups: b.group("a", w.a), Ports: sctp})
				b.publish(t)
				becomes(t, "a rule for the port", associates(w.a, at, true))
				becomes(t, "no rule for the other port", associates(w.a, other, false))
				becomes(t, "no rule for the other pod", associates(w.d, at, false))
				becomes(t, "the association that there is", func(context.Context) error {
					if err := echoLine(live, in, "denied", time.Second); err == nil {
						return fmt.Errorf("goes on")
					}
					return nil
				})

				b.open(server)
				b.publish(t)
				if err := echoLine(live, in, "again", 30*time.Second); err != nil {
					t.Errorf("the association does not go on when it is allowed again: %v", err)
				}
			})
		}
	}
}
