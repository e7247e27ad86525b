// SPDX-License-Identifier: Apache-2.0

// Package plannertest is a conformance test of cni.Planner: the agent's implementation and the fake
// in package cni's tests must both pass it.
package plannertest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// World is a Planner with a Network of blocks on which interfaces can be that are
// not a pod's first.
type World struct {
	cni.Planner
	// Network and ID are those of the Network, Subnet is its only one.
	Network string
	ID      intent.NetworkID
	Subnet  intent.NetworkSubnet
	// Free is an address of the subnet that nothing has.
	Free netip.Addr
	// Pod is the ADD of the first interface of a pod, on the Network default. The pod is known to
	// the API, and asks for an interface net1 on Network if further says so.
	Pod func(name string, further bool) cni.Request
}

var values = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// Run runs the cases, each on a World of its own, in a bubble of synctest with a fake clock.
func Run(t *testing.T, newWorld func(t *testing.T) World) {
	for name, run := range map[string]func(*testing.T, World){
		"ordinary pod": ordinary, "fixed": fixed, "further interface": further, "delegate": delegate,
		"unknown Network": unknown,
		"ranges":          ranges, "claim": claim, "unclaim": unclaim,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, newWorld(t)) })
		})
	}
}

func (w World) plan(t *testing.T, r cni.Request, want ...attachment.Plan) {
	t.Helper()
	got, err := w.Plan(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// first is the plan of the first interface of a pod that asks for r.
func first(r attachment.Requested) attachment.Plan {
	r.DefaultRoute = true
	return attachment.Plan{Requested: r, Spec: attachment.Spec{
		Key: attachment.Key{IfName: "eth0"}, NetworkName: intent.DefaultNetworkName, NetworkID: intent.DefaultNetwork,
		Primary: true,
	}}
}

// second is the plan of net1 on the World's Network.
func (w World) second(r attachment.Requested) attachment.Plan {
	return attachment.Plan{Requested: r, Subnets: []intent.NetworkSubnet{w.Subnet}, Spec: attachment.Spec{
		Key: attachment.Key{IfName: "net1"}, NetworkName: w.Network, NetworkID: w.ID, BlockSpace: true,
	}}
}

func ordinary(t *testing.T, w World) {
	w.plan(t, w.Pod("p", false), first(attachment.Requested{}))
}

func fixed(t *testing.T, w World) {
	r := w.Pod("p", false)
	r.Requested = attachment.Requested{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.9")}, MAC: &intent.MAC{2, 0, 0, 0, 0, 9},
	}
	w.plan(t, r, first(r.Requested))
}

func further(t *testing.T, w World) {
	w.plan(t, w.Pod("p", true), first(attachment.Requested{}), w.second(attachment.Requested{}))
}

func delegate(t *testing.T, w World) {
	r := w.Pod("p", false)
	r.Network, r.IfName, r.Addresses = w.Network, "net1", []netip.Addr{w.Free}
	w.plan(t, r, w.second(r.Requested))
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var e *cni.PlanError
	if !errors.As(err, &e) || e.Reason != reason || e.Message == "" {
		t.Errorf("got %v, want a *PlanError for the reason %s", err, reason)
	}
}

func unknown(t *testing.T, w World) {
	r := w.Pod("p", false)
	r.Network, r.IfName = "nowhere", "net1"
	_, err := w.Plan(t.Context(), r)
	wantReason(t, err, v1alpha1.ReasonNetworkNotFound)
	_, err = w.Ranges(t.Context(), "nowhere", []intent.NetworkSubnet{w.Subnet}, nil)
	wantReason(t, err, v1alpha1.ReasonNetworkNotFound)
}

// ranges uses up all blocks: the Planner claims one more each time, until there is none.
func ranges(t *testing.T, w World) {
	var had []netip.Prefix
	for {
		list, err := w.Ranges(t.Context(), w.Network, []intent.NetworkSubnet{w.Subnet}, had)
		if err != nil {
			wantReason(t, err, v1alpha1.ReasonExhausted)
			break
		}
		again, err := w.Ranges(t.Context(), w.Network, []intent.NetworkSubnet{w.Subnet}, had)
		if err != nil || !slices.EqualFunc(list, again, func(a, b ipam.Range) bool {
			return a.Prefix() == b.Prefix()
		}) {
			t.Fatalf("asked again: %v, %v, first %v", again, err, list)
		}
		more := false
		for _, r := range list {
			if r.Subnet() != w.Subnet.Prefix || r.Gateway() != w.Subnet.Gateway ||
				!w.Subnet.Prefix.Overlaps(r.Prefix()) {
				t.Errorf("range %s of %s with gateway %s", r.Prefix(), r.Subnet(), r.Gateway())
			}
			if slices.Contains(had, r.Prefix()) {
				continue
			}
			if slices.ContainsFunc(had, r.Prefix().Overlaps) {
				t.Fatalf("%s overlaps one of %v", r.Prefix(), had)
			}
			had, more = append(had, r.Prefix()), true
		}
		if !more {
			t.Fatalf("no range beside those that are exhausted, and no error: %v", list)
		}
	}
	if len(had) == 0 {
		t.Error("there was no range")
	}
}

// attached is what the server records before it claims.
func (w World) attached(pod string) attachment.Attachment {
	return attachment.Attachment{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: pod, IfName: "net1"}, PodNamespace: "shop", PodName: pod,
			PodUID:   "uid-" + pod,
			PortName: pod + ".net1", NetworkName: w.Network, NetworkID: w.ID, BlockSpace: true,
		},
		MAC: reserved.PodMAC(w.Free), Addresses: []netip.Prefix{netip.PrefixFrom(w.Free, w.Subnet.Prefix.Bits())},
		FixedAddresses: true,
	}
}

func claim(t *testing.T, w World) {
	for range 2 { // as a repeated ADD does
		if err := w.Claim(t.Context(), w.attached("p")); err != nil {
			t.Fatal(err)
		}
	}
	wantReason(t, w.Claim(t.Context(), w.attached("q")), v1alpha1.ReasonAddressTaken)
}

func unclaim(t *testing.T, w World) {
	if err := w.Unclaim(t.Context(), w.attached("q")); err != nil {
		t.Errorf("of what was not claimed: %v", err)
	}
	if err := w.Claim(t.Context(), w.attached("p")); err != nil {
		t.Fatal(err)
	}
	if err := w.Unclaim(t.Context(), w.attached("p")); err != nil {
		t.Error(err)
	}
}
