// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// learning bounds the wait until all nodes have a Service or a change of it.
	learning = 30 * time.Second
	// patience is how long one question may take: much more than an answer, less than a
	// connection's second try.
	patience = 2 * time.Second
	// draws is how often a Service is asked, so that none of its two endpoints is
	// left out by chance.
	draws = 24
)

// question is a server's address, and what a client asks it: "hostname" or "clientip".
type question struct {
	protocol corev1.Protocol
	at       netip.AddrPort
}

// ask returns the answer of one new connection.
func (q question) ask(ctx context.Context, from place, what string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if q.protocol != corev1.ProtocolUDP {
		return get(ctx, from, q.at, "/"+what)
	}
	var conn net.Conn
	if err := from.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "udp", q.at.String())
		return err
	}); err != nil {
		return "", err
	}
	defer conn.Close()
	return exchange(ctx, conn, what)
}

// exchange sends a UDP packet and returns the next that comes.
func exchange(ctx context.Context, conn net.Conn, what string) (string, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(what)); err != nil {
		return "", err
	}
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}

func (q question) String() string { return fmt.Sprintf("%s %s", q.protocol, q.at) }

// servers asks many times and returns the names that answered, sorted.
func (q question) servers(ctx context.Context, from place) ([]string, error) {
	names := map[string]bool{}
	for range draws {
		name, err := q.ask(ctx, from, "hostname")
		if err != nil {
			return nil, err
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// serves waits until just these servers answer.
func (q question) serves(ctx context.Context, t *testing.T, from place, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		got, err := q.servers(ctx, from)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v answer, want %v", got, want)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s asks %s: %v", from.name, q, err)
	}
}

// seen returns the client's address as a server sees it, by a Service that is known to answer.
func (q question) seen(ctx context.Context, t *testing.T, from place, want netip.Addr) {
	t.Helper()
	for range 6 { // of both endpoints
		text, err := q.ask(ctx, from, "clientip")
		client, bad := netip.ParseAddrPort(text)
		if err = errors.Join(err, bad); err != nil {
			t.Errorf("%s asks %s: %v", from.name, q, err)
			return
		}
		if got := client.Addr().Unmap(); got != want {
			t.Errorf("%s asks %s: the server sees %s, want %s", from.name, q, got, want)
			return
		}
	}
}

// outcome of a question that must not be answered.
const (
	refused = "refused"
	silent  = "silence"
)

// fails waits until questions end so: refused at once, by a reset or as unreachable,
// or without any word.
func (q question) fails(ctx context.Context, t *testing.T, from place, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		short, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		answer, err := q.ask(short, from, "hostname")
		if err == nil {
			return fmt.Errorf("%s answers", answer)
		}
		got := silent
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			got = refused
		case errors.Is(err, unix.EPERM):
			// A process of a node is not allowed to send what its own kernel refuses or drops.
			got = want
		}
		if got != want {
			return fmt.Errorf("%s (%w), want %s", got, err, want)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s asks %s: %v\n%s", from.name, q, err, q.explained(ctx, from))
	}
}

// explained is what the workers know of a question that does not end as it should: their bridge, if
// a pod asks, and what their kernels refuse.
func (q question) explained(ctx context.Context, from place) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), learning)
	defer cancel()
	var parts []string
	if _, pod, ok := strings.Cut(from.name, "/"); ok && pod != "" {
		trace, err := world.coelan(ctx, "trace", "-v", "--protocol", strings.ToLower(string(q.protocol)), from.name, q.at.String())
		parts = append(parts, fmt.Sprintf("trace: %s%v", trace, err))
	}
	for _, node := range []string{worker1, worker2} {
		out, err := world.Exec(ctx, node, "sh", "-c", "grep -E 'Icmp6Out.*(Msgs|Unreach|Rate)' /proc/net/snmp6; nft list ruleset | grep -A40 'set reject'; "+
			"ovs-appctl dpctl/dump-flows -m | grep -E 'tp_?dst=80|udp|icmp'")
		parts = append(parts, fmt.Sprintf("%s: %s%v", node, out, err))
	}
	return strings.Join(parts, "\n")
}
