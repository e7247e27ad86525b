// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovstest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
)

func TestSurvivesKillsAndRestarts(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o, err := New(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Stop()
	if err := o.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"vswitchd killed", func() error { o.KillVswitchd(); return o.StartVswitchd(ctx) }},
		{"vswitchd stopped", func() error { o.StopVswitchd(); return o.StartVswitchd(ctx) }},
		{"database killed", func() error { o.KillDB(); return o.StartDB(ctx) }},
		{"both killed", func() error { return o.Restart(ctx) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		got, err := o.Ofctl(ctx, "show", "br0")
		if err != nil || !strings.Contains(got, "n_tables:254") {
			t.Errorf("after %s: ofctl show = %q, %v", s.name, got, err)
		}
	}
}

func TestRunsInItsOwnNamespace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := Start(t, Options{}), Start(t, Options{})
	for _, o := range []*OVS{a, b} {
		if err := o.AddBridge(ctx, "br0"); err != nil {
			t.Fatal(err)
		}
		if err := o.Do(func() error { _, err := netlink.LinkByName("br0"); return err }); err != nil {
			t.Errorf("br0 in its namespace: %v", err)
		}
	}
	if _, err := netlink.LinkByName("br0"); err == nil {
		t.Error("br0 is in the namespace of the test")
	}
	in, err := New(ctx, Options{Netns: a.Netns()})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Stop()
	if _, err := in.Run(ctx, "ip", "link", "show", "br0"); err != nil {
		t.Errorf("given namespace: %v", err)
	}
}
