// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// floodPort is where pods send what must not come, as soon as they run.
const floodPort = 7300

// testPolicyFirstPackets starts pods that send at once. Not one packet of those that may
// not send comes through, neither to a pod of their node nor to another; those of the pods
// that may do, soon.
func testPolicyFirstPackets(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	policy(ctx, t, "starters", "podSelector: {matchLabels: {app: starter, may: 'no'}}, policyTypes: [Egress]")
	// The receiver's node, too, knows in time that the sender is not a peer.
	policy(ctx, t, "web", "podSelector: {matchLabels: {server: web2}}, ingress: [{from: [{podSelector: {matchLabels: {may: 'yes'}}}]}]")
	finished := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }
	for _, c := range []struct {
		name, labels string
		to           place
		open         bool
	}{
		{"may not send, same node", "app: starter, may: 'no'", stage.web1, false},
		{"may not send, other node", "app: starter, may: 'no'", stage.odd2, false},
		{"may not be received", "app: starter", stage.web2, false},
		{"may send", "app: starter, may: 'yes'", stage.web2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			received := listen(t, c.to, floodPort)
			makeFlood(ctx, t, c.labels, c.to)
			if c.open {
				if err := eventually(ctx, func() error { return received.every() }); err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := world.waitPod(ctx, "policies/starter", finished); err != nil {
				t.Fatal(err)
			}
			for f, n := range received {
				if n.Load() > 0 {
					t.Errorf("%s: %d packets came through", f, n.Load())
				}
			}
		})
	}
}

// makeFlood makes a pod on the first worker that sends a packet every few milliseconds for three
// seconds, from its first moment on.
func makeFlood(ctx context.Context, t *testing.T, labels string, to place) {
	t.Helper()
	script := "end=$((SECONDS + 3)); while [ $SECONDS -lt $end ]; do"
	for _, f := range families {
		script += fmt.Sprintf(" echo x >/dev/udp/%s/%d;", to.address(f), floodPort)
	}
	script += " done"
	apply(ctx, t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: starter, namespace: policies, labels: {%s}}
spec:
  nodeName: worker1
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: agnhost, image: %q, command: [bash, -c, %q]}]
`, labels, agnhost, script))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "policies/starter") })
}

// mailbox counts the packets that come to a place.
type mailbox map[family]*atomic.Int64

func listen(t *testing.T, at place, port uint16) mailbox {
	t.Helper()
	m := mailbox{}
	for _, f := range families {
		n := &atomic.Int64{}
		m[f] = n
		var conn *net.UDPConn
		err := at.Do(func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.address(f), port)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		done.Go(func() {
			for buf := make([]byte, 64); ; {
				if _, err := conn.Read(buf); errors.Is(err, net.ErrClosed) {
					return
				} else if err == nil {
					n.Add(1)
				}
			}
		})
		t.Cleanup(func() { conn.Close(); done.Wait() })
	}
	return m
}

// every is an objection unless something came in each family.
func (m mailbox) every() error {
	for f, n := range m {
		if n.Load() == 0 {
			return fmt.Errorf("%s: nothing came", f)
		}
	}
	return nil
}

// flow sends a packet to a port every few milliseconds until it is stopped.
func flow(ctx context.Context, from place, to netip.Addr, port uint16) (stop func(), err error) {
	var conn *net.UDPConn
	err = from.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = conn.Write([]byte("x")) // what comes through is counted where it arrives
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); done.Wait(); conn.Close() }, nil
}
