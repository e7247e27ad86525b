// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestReleasedAfterPings deletes a pod that has just pinged and asked another one. Its connections
// are forgotten, and Open vSwitch lives on, which has aborted at that.
func TestReleasedAfterPings(t *testing.T) {
	t.Parallel()
	w := startTenantsWith(t, lab.Options{Policies: true})
	allow(t, w)
	ctx := t.Context()
	gone, other := w.d, w.b
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(other.Address(f), answerPort)
		answers(t, other.Host, at)
		if r, err := (probe.Ping{Dst: other.Address(f)}).Run(ctx, gone.Host); err != nil || len(r.Replies) == 0 {
			t.Fatalf("%s: pings: %v, %v", f, r, err)
		}
		if who, _, err := ask(ctx, gone.Host, "tcp", at, probe.AnswerTimeout); err != nil || who != other.Name {
			t.Fatalf("%s: %q answers: %v", f, who, err)
		}
	}
	known := func(ctx context.Context) error {
		list, err := w.n1.OVS.Appctl(ctx, "dpctl/dump-conntrack")
		if err != nil {
			return err
		}
		for line := range strings.Lines(list) {
			for f := range lab.Dual.Each {
				if strings.HasPrefix(line, "tcp,") && strings.Contains(line, "src="+gone.Address(f).String()+",") {
					return fmt.Errorf("conntrack knows %s", line)
				}
			}
		}
		return nil
	}
	if known(ctx) == nil {
		t.Fatal("conntrack knows no connection of the pod")
	}
	if err := gone.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	becomes(t, "forgotten", known)
	var lost error
	for f := range lab.Dual.Each {
		if r, err := (probe.Ping{Dst: other.Address(f)}).Run(ctx, w.a.Host); err != nil || len(r.Replies) == 0 {
			lost = errors.Join(lost, fmt.Errorf("%s: between pods that stay: %v, %w", f, r, err))
		}
	}
	if lost != nil {
		t.Error(lost)
	}
}
