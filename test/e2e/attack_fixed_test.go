// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/test/lab/probe"
)

// prize is a machine's Port with a fixed address and MAC.
const prize = `
apiVersion: coelan.io/v1alpha1
kind: Port
metadata: {name: prize, namespace: red}
spec: {network: red, addresses: [10.50.200.9], mac: "02:00:00:00:50:09"}
`

// attackFixedAddresses uses the token of worker1's agent to make a Port with the address of others:
// the fixed address of a machine on another node. What a third node sends there must not go to
// worker1, and is looked for on its wire, since a stolen node delivers as it likes. The control is
// a Port of the same kind with a free address, which the token may claim: what is sent there goes
// to worker1. It comes after the other, so nodes that know it know both. And the token claims the
// address of a pod on worker2, which it must not grant itself.
func attackFixedAddresses(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	objects, err := client.New(stolenToken(ctx, t, worker1), client.Options{Scheme: world.objects.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, prize)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", "red", "ports.coelan.io", "prize") })
	port := named(&v1alpha1.Port{}, "red/prize")
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	machine := netip.MustParseAddr(port.Spec.Addresses[0])
	free := machine.Next()
	owner := plugWire(ctx, t, control, "red/prize")
	if err := wait(ctx, port, boundTo(control)); err != nil {
		t.Fatal(err)
	}
	node, err := probe.OpenWire(world.machine(ctx, t, worker1), nodeLink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)

	far := world.tenant(ctx, t, "red/web2")
	say := func(to netip.Addr) func([]byte) error {
		return datagram(far, "udp", netip.AddrPortFrom(to, victimPort), whole)
	}
	bindFor(ctx, t, objects, "stolen", machine)
	claimFor(ctx, t, objects, free, "red/client1.free")
	bindFor(ctx, t, objects, "free", free)
	launch(ctx, t, []attack{{
		"worker1 gives its Port the address of a machine on another node",
		shot{say(machine), node}, shot{say(free), node},
	}})
	arrive(ctx, t, []attack{{who: "the machine has its address", control: shot{say(machine), owner}}}, "after")

	grantItself(ctx, t, objects, claimFor(ctx, t, objects, far.address(ipv4), "red/client1.eth0"))

	// The rightful owner takes its address along.
	unplugWire(ctx, t, control)
	moved := plugWire(ctx, t, worker1, "red/prize")
	if err := wait(ctx, port, boundTo(worker1)); err != nil {
		t.Fatal(err)
	}
	arrive(ctx, t, []attack{{who: "the machine has moved to worker1", control: shot{say(machine), moved}}}, "moved")
}

// nodeLink is the interface of a node that the other nodes are behind.
const nodeLink = "eth1"

// bindFor makes a Port of a further interface of pod red/client1 on worker1, with the
// stolen token. All nodes watch such Ports: it does not have the label of Ports with
// addresses of their node's blocks.
func bindFor(ctx context.Context, t *testing.T, objects client.Client, name string, address netip.Addr) {
	t.Helper()
	spec := portOf(ctx, t, "red/client1").Spec
	pod := *spec.Pod
	pod.Interface = name
	port := named(&v1alpha1.Port{}, "red/client1."+name)
	port.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent}
	port.Spec = v1alpha1.PortSpec{Network: spec.Network, Node: worker1, Pod: &pod, Addresses: []v1alpha1.Address{address.String()}}
	if err := objects.Create(ctx, port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(world.objects.Delete(context.WithoutCancel(ctx), port)); err != nil {
			t.Error(err)
		}
	})
	status, err := json.Marshal(map[string]any{"status": v1alpha1.PortStatus{
		Phase: v1alpha1.PortBound, Node: worker1, MAC: reserved.PodMAC(address).String(), Addresses: []string{address.String()},
	}})
	if err == nil {
		err = objects.Status().Patch(ctx, port, client.RawPatch(types.MergePatchType, status))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// boundTo is an objection unless a node has bound the Port.
func boundTo(node string) func(*v1alpha1.Port) error {
	return func(p *v1alpha1.Port) error {
		if p.Status.Node != node {
			return errMissing
		}
		return portIn(v1alpha1.PortBound)(p)
	}
}

// claimFor claims an address for a Port of the thief, with the stolen token. The API server takes
// it; what another node hands out is not the Port's by that.
func claimFor(ctx context.Context, t *testing.T, objects client.Client, address netip.Addr, port string) *v1alpha1.AddressBlock {
	t.Helper()
	prefix := netip.PrefixFrom(address, address.BitLen())
	claim := named(&v1alpha1.AddressBlock{}, names.BlockName("red", prefix))
	claim.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent}
	claim.Spec = v1alpha1.AddressBlockSpec{
		Network: "red", CIDR: prefix.String(), Node: worker1, Port: port, Grantor: worker1,
	}
	if err := objects.Create(ctx, claim); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(world.objects.Delete(context.WithoutCancel(ctx), claim)); err != nil {
			t.Error(err)
		}
	})
	return claim
}

// grantItself has the thief answer its own claim.
func grantItself(ctx context.Context, t *testing.T, objects client.Client, own *v1alpha1.AddressBlock) {
	t.Helper()
	granted, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{{
		Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
		Message: translate.GrantMessage(worker1), LastTransitionTime: metav1.Now(),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	err = objects.Status().Patch(ctx, own, client.RawPatch(types.MergePatchType, granted))
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("worker1 grants itself an address: %v", err)
	}
}

// prizeLink makes a pair of interfaces on a node, of which the first is a port of the integration
// bridge for the Port of that key.
const prizeLink = "ip link add prize0 type veth peer name prize1; ip link set prize0 up mtu 1450; ip link set prize1 up mtu 1450; " +
	"ovs-vsctl add-port br-int prize0 -- set Interface prize0 external_ids:iface-id="

// plugWire listens where the machine of a Port would be.
func plugWire(ctx context.Context, t *testing.T, node, key string) *probe.Wire {
	t.Helper()
	if _, err := world.Exec(ctx, node, "sh", "-ec", prizeLink+key); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unplugWire(context.WithoutCancel(ctx), t, node) })
	w, err := probe.OpenWire(world.machine(ctx, t, node), "prize1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func unplugWire(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	_, err := world.Exec(ctx, node, "sh", "-ec", "ovs-vsctl --if-exists del-port br-int prize0; ip link del prize0 2>/dev/null || true")
	if err != nil {
		t.Error(err)
	}
}
