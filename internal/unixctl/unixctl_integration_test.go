// SPDX-License-Identifier: Apache-2.0

//go:build integration

package unixctl_test

import (
	"errors"
	"strings"
	"testing"

	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/unixctl"
)

func TestRealDaemons(t *testing.T) {
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(t.Context(), "br0"); err != nil {
		t.Fatal(err)
	}
	vswitchd := unixctl.Vswitchd(ovs.Dir)
	trace, err := vswitchd.Call(t.Context(), "ofproto/trace", "br0", "in_port=LOCAL,icmp")
	if err != nil || !strings.Contains(trace, "Datapath actions: drop") {
		t.Errorf("trace: %q, %v", trace, err)
	}
	var refused *unixctl.Error
	if _, err := vswitchd.Call(t.Context(), "ofproto/trace", "br9", "icmp"); !errors.As(err, &refused) {
		t.Errorf("trace of a missing bridge: %v", err)
	}
	if v, err := unixctl.DBServer(ovs.Dir).Call(t.Context(), "version"); err != nil || !strings.Contains(v, "ovsdb-server") {
		t.Errorf("version: %q, %v", v, err)
	}
	ovs.KillVswitchd()
	if _, err := vswitchd.Call(t.Context(), "version"); !errors.Is(err, unixctl.ErrNotRunning) {
		t.Errorf("after a kill: %v", err)
	}
	if err := ovs.StartVswitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := vswitchd.Call(t.Context(), "version"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
