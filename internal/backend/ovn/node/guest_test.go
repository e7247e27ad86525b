// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovn/southbound"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// namedElsewhere are ports with names that only their interfaces tell.
type namedElsewhere struct {
	LogicalPorts
	unknown bool
}

func (p namedElsewhere) Known() bool { return !p.unknown }

func (namedElsewhere) Port(attachment.Attachment) (string, int) { return "", 0 }

func (namedElsewhere) Guest(logical string) (string, bool) {
	return logical, uuid.Validate(logical) == nil
}

// A machine's interface that is plugged as a port of Neutron is that of its Port when OVN has
// connected it, and a trace and the comparison name that port.
func TestGuestOfNeutron(t *testing.T) {
	const logical = "11111111-0000-4000-8000-000000000001"
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	n.named(namedElsewhere{n.logical, false})
	must(t, n.ovs.AddPort("br-int", "tap0", map[string]string{idInterface: logical}))
	must(t, n.ovs.AddPort("br-int", "tap1", map[string]string{idInterface: "shop/other"}))
	// What is bound stays so until the API server has said what the node is.
	n.named(namedElsewhere{n.logical, true})
	if guests, err := n.Guests(bound(t)); err == nil {
		t.Errorf("guests %+v while the node is not known", guests)
	}
	n.named(namedElsewhere{n.logical, false})
	guests, err := n.Guests(bound(t))
	must(t, err)
	if len(guests) != 1 || guests[0].Name != "tap0" || guests[0].ID != logical {
		t.Fatalf("guests %+v", guests)
	}
	at, err := n.store.Allocate(attachment.Plan{Spec: attachment.Spec{
		Key: attachment.PortKey("shop", "vm"), PodNamespace: "shop", PodName: "vm", PortName: "vm", PodUID: "uid",
		HostInterface: "tap0", NetworkName: "red",
	}, Requested: attachment.Requested{Addresses: []netip.Addr{netip.MustParseAddr("10.244.2.9")}}})
	must(t, err)
	_, err = n.Intent.Update(func(tx *intent.Tx) error { tx.SetPort(translate.Port(at, "n1")); return nil })
	must(t, err)

	n.ports.patience = time.Millisecond
	n.says(n.Forwards(bound(t), at, 0), "OVN has not connected interface tap0, which is plugged for Port shop/vm")
	n.ports.patience = time.Minute
	forwards := make(chan error, 1)
	ctx, cancel := context.WithCancel(bound(t))
	defer cancel()
	go func() { forwards <- n.Forwards(ctx, at, 0) }()
	must(t, n.ovs.ConnectOVN("mgmt-n1", logical))
	must(t, <-forwards)

	trace, err := n.Trace(bound(t), traceOf("shop/vm", "10.244.2.7"))
	if err != nil || trace.Outcome.LogicalPort != logical {
		t.Errorf("trace %+v, %v", trace, err)
	}
	n.configured(map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"})
	n.bindings = bindingsOf(southbound.View{HasChassis: true, Bindings: map[string]southbound.Binding{
		"mgmt-n1": {LogicalPort: "mgmt-n1", Chassis: "n1", Up: true}, logical: {LogicalPort: logical, Chassis: "n1", Up: true},
	}})
	infos, err := n.Ports(bound(t))
	if err != nil || len(infos) != 1 || infos[0].Actual <= 0 {
		t.Errorf("ports %+v, %v", infos, err)
	}
	var c agentapi.Check
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) > 0 {
		t.Errorf("findings: %+v", c.Findings)
	}
}
