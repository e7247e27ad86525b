// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
)

// The machine of these tests, and the Port that is made for it.
const (
	guestMAC  = "52:54:00:aa:00:01"
	guestName = "guest-52-54-00-aa-00-01"
)

// newDynamicWorld has a Network with DHCP that namespace shop is on.
func newDynamicWorld(t *testing.T, change ...func(*v1alpha1.Network)) *world {
	t.Helper()
	w := newWorld(t)
	w.addLAN(change...)
	return w
}

func (w *world) addLAN(change ...func(*v1alpha1.Network)) {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "lan"},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, Role: v1alpha1.Primary, IPAM: v1alpha1.Blocks, DHCP: &v1alpha1.DHCP{},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"on": "lan"}},
		},
	}
	for _, c := range change {
		c(n)
	}
	w.api.Add(n,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"on": "lan"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "else"}})
}

// plugMachine plugs one that names no Port.
func (w *world) plugMachine(name, namespace, mac string) {
	w.mu.Lock()
	w.guests[name] = backend.Guest{Name: name, ID: namespace + "/?", MAC: mac, Number: 1}
	w.mu.Unlock()
	w.Kick()
}

func (w *world) port(name string) *v1alpha1.Port {
	for _, p := range w.api.AllPorts() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// leased has the status of a Port say that its machine has a lease until then.
func (w *world) leased(name string, until time.Time) {
	w.t.Helper()
	lease := map[string]any{"lease": map[string]any{"addresses": []string{"10.0.0.17"}, "expireTime": until.UTC().Format(time.RFC3339)}}
	if err := w.api.PatchPortStatus(w.t.Context(), "shop", name, lease); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bound(name string) bool {
	p := w.port(name)
	return p != nil && p.Status.Phase == v1alpha1.PortBound && p.Status.Node == "n1" && w.connected(name) != 0
}

func TestMachineWithoutPort(t *testing.T) {
	w := newDynamicWorld(t)
	w.plugMachine("tap0", "shop", guestMAC)
	kubetest.Eventually(t, "the machine has a Port", func() bool { return w.bound(guestName) })
	p := w.port(guestName)
	if p.Spec.Network != "lan" || p.Spec.MAC != guestMAC || p.Spec.Node != "n1" || !p.Spec.Dynamic || p.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByAgent {
		t.Errorf("the Port is %+v, %v", p.Spec, p.Labels)
	}
	if len(p.Status.Addresses) != 1 || !netip.MustParsePrefix(blocks[0]).Contains(netip.MustParseAddr(p.Status.Addresses[0])) || p.Status.MAC != guestMAC {
		t.Errorf("it has %+v, want an address of the node's block", p.Status)
	}
	at, _ := w.store.Get(attachment.PortKey("shop", guestName))
	if at.FixedAddresses || !at.Dynamic || at.MAC.String() != guestMAC || at.PodUID != string(p.UID) {
		t.Errorf("the attachment is %+v", at)
	}

	// It has not asked for its address when it goes.
	w.unplug("tap0")
	kubetest.Eventually(t, "nothing is left", func() bool {
		return w.port(guestName) == nil && w.connected(guestName) == 0 && len(w.store.List()) == 0
	})
}

func TestLeaseOutlastsInterface(t *testing.T) {
	w := newDynamicWorld(t)
	w.plugMachine("tap0", "shop", guestMAC)
	kubetest.Eventually(t, "the machine has a Port", func() bool { return w.bound(guestName) })
	before := w.port(guestName)
	w.leased(guestName, time.Now().Add(time.Hour))
	w.unplug("tap0")
	kubetest.Eventually(t, "the Port waits", func() bool {
		p := w.port(guestName)
		return p != nil && p.Status.Phase == v1alpha1.PortReady && p.Status.Node == "" && w.connected(guestName) == 0
	})
	w.plugMachine("tap1", "shop", "52:54:00:aa:00:02")
	kubetest.Eventually(t, "another machine has a Port", func() bool { return w.bound("guest-52-54-00-aa-00-02") })
	if other := w.port("guest-52-54-00-aa-00-02"); slices.Equal(other.Status.Addresses, before.Status.Addresses) {
		t.Errorf("two machines have %s", other.Status.Addresses)
	}
	w.plugMachine("tap2", "shop", guestMAC)
	kubetest.Eventually(t, "the machine is back", func() bool { return w.bound(guestName) })
	if now := w.port(guestName); now.UID != before.UID || !slices.Equal(now.Status.Addresses, before.Status.Addresses) {
		t.Errorf("it has %s, had %s", now.Status.Addresses, before.Status.Addresses)
	}
	if at, _ := w.store.Get(attachment.PortKey("shop", guestName)); at.HostInterface != "tap2" {
		t.Errorf("it is at %s", at.HostInterface)
	}
	w.leased(guestName, time.Now().Add(2*time.Second)) // is over soon, and nothing else happens
	w.unplug("tap2")
	kubetest.Eventually(t, "the lease ends", func() bool {
		return w.port(guestName) == nil && len(w.store.List()) == 1
	})
}

func TestMachineOutlivesRestart(t *testing.T) {
	w := &world{
		t: t, api: kubetest.New("n1"), path: filepath.Join(t.TempDir(), "state.db"), guests: map[string]backend.Guest{}, numbers: map[string]int{},
		flows: map[string]attachment.Attachment{}, nodes: []string{"n1"},
	}
	stop := w.start()
	w.addLAN()
	w.plugMachine("tap0", "shop", guestMAC)
	w.plugMachine("tap1", "shop", "52:54:00:aa:00:02")
	kubetest.Eventually(t, "the machines have Ports", func() bool { return w.bound(guestName) && w.bound("guest-52-54-00-aa-00-02") })
	before := w.port("guest-52-54-00-aa-00-02").Status.Addresses
	w.leased("guest-52-54-00-aa-00-02", time.Now().Add(time.Hour))
	stop()
	w.unplug("tap0")
	w.unplug("tap1")
	t.Cleanup(w.start())
	kubetest.Eventually(t, "what went meanwhile is gone", func() bool {
		return w.port(guestName) == nil && w.connected(guestName) == 0 && w.connected("guest-52-54-00-aa-00-02") == 0
	})
	w.plugMachine("tap1", "shop", "52:54:00:aa:00:02")
	kubetest.Eventually(t, "the machine is back", func() bool { return w.bound("guest-52-54-00-aa-00-02") })
	if now := w.port("guest-52-54-00-aa-00-02").Status.Addresses; !slices.Equal(now, before) {
		t.Errorf("it has %s, had %s", now, before)
	}
}

func TestStaticLeaseByMAC(t *testing.T) {
	w := newDynamicWorld(t)
	mine := port("db", "10.0.0.50", func(p *v1alpha1.Port) { p.Spec.MAC, p.Status.MAC = "52:54:00:AA:00:01", guestMAC })
	w.api.Add(mine)
	w.plugMachine("tap0", "shop", guestMAC)
	kubetest.Eventually(t, "the user's Port is bound", func() bool { return w.bound("db") })
	if w.port(guestName) != nil {
		t.Error("a Port was made beside the user's")
	}
}

// A Port that a user makes for a machine takes the place of that which the agent has made, although
// its lease is valid.
func TestUserTakesMachineOver(t *testing.T) {
	w := newDynamicWorld(t)
	w.plugMachine("tap0", "shop", guestMAC)
	kubetest.Eventually(t, "the machine has a Port", func() bool { return w.bound(guestName) })
	w.leased(guestName, time.Now().Add(time.Hour))
	w.api.Add(port("db", "10.0.0.50", func(p *v1alpha1.Port) { p.Spec.MAC, p.Status.MAC = guestMAC, guestMAC }))
	kubetest.Eventually(t, "the user's Port is bound", func() bool { return w.bound("db") && w.port(guestName) == nil })
}

func TestMachinesWithoutPlace(t *testing.T) {
	reserved := func(p *v1alpha1.Port) { p.Spec.MAC, p.Status.MAC = guestMAC, guestMAC }
	for _, tc := range []struct {
		name, namespace, mac string
		network              func(*v1alpha1.Network)
		other                *v1alpha1.Port
		want                 string
	}{
		{"no Network", "else", guestMAC, nil, nil, "NetworkNotFound: interface tap0 of node n1: no Network selects namespace else"},
		{"no such namespace", "nowhere", guestMAC, nil, nil, "Invalid: interface tap0 of node n1: namespace nowhere does not exist"},
		{"Network without DHCP", "shop", guestMAC, func(n *v1alpha1.Network) { n.Spec.DHCP = nil }, nil, "NetworkWithoutDHCP: interface tap0 of node n1: network lan has no spec.dhcp"},
		{"MACs are not free to choose", "shop", guestMAC, func(n *v1alpha1.Network) { n.Spec.Fixed = &v1alpha1.Fixed{MACs: v1alpha1.NoMAC} }, nil, "FixedMACNotAllowed: "},
		{"no MAC", "shop", "", nil, nil, `Invalid: interface tap0 of node n1: external_ids:attached-mac is ""`},
		{"group's MAC", "shop", "01:00:5e:00:00:01", nil, nil, "Invalid: "},
		{"a pod's MAC", "shop", "0a:ce:0a:00:00:05", nil, nil, "MACTaken: "},
		{
			"another machine's MAC", "shop", guestMAC, nil,
			&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "else", Name: "db"}, Spec: v1alpha1.PortSpec{Network: "lan"}, Status: v1alpha1.PortStatus{MAC: guestMAC}},
			"MACTaken: interface tap0 of node n1: MAC 52:54:00:aa:00:01 is that of port else/db",
		},
		{"name taken", "shop", guestMAC, nil, port(guestName, "10.0.0.50"), "NameTaken: "},
		{
			"machine of another node", "shop", guestMAC, nil,
			port(guestName, "10.0.0.50", reserved, func(p *v1alpha1.Port) { p.Spec.Dynamic, p.Spec.Node, p.Status.Node = true, "n2", "n2" }),
			"BoundElsewhere: it is of a machine on node n2",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.other != nil {
				w.api.Add(tc.other.DeepCopy())
			}
			if tc.network == nil {
				tc.network = func(*v1alpha1.Network) {}
			}
			w.addLAN(tc.network)
			w.plugMachine("tap0", tc.namespace, tc.mac)
			kubetest.Eventually(t, "the user is told", func() bool { return w.hasEvent(tc.want) })
			for _, p := range w.api.AllPorts() {
				if p.Spec.Dynamic && p.Spec.Node == "n1" {
					t.Errorf("Port %s was made", p.Name)
				}
			}
			if len(w.store.List()) > 0 {
				t.Errorf("attachments: %+v", w.store.List())
			}
		})
	}
}

// A user may make a Port that looks as if an agent had made it, for a Network that does not take
// the user's namespace.
func TestPortThatLooksDynamic(t *testing.T) {
	w := newDynamicWorld(t, func(n *v1alpha1.Network) {
		n.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"on": "another"}}
	})
	w.plugMachine("tap0", "shop", guestMAC)
	kubetest.Eventually(t, "it has no Port", func() bool { return w.hasEvent("NetworkNotFound") })
	w.api.Add(&v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: guestName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent}},
		Spec:       v1alpha1.PortSpec{Network: "lan", Node: "n1", MAC: guestMAC, Dynamic: true},
	})
	kubetest.Eventually(t, "the user is told", func() bool {
		return w.hasEvent("NamespaceNotAllowed: network lan does not take Ports of namespace shop") && w.status(guestName).LastError != ""
	})
	if w.connected(guestName) != 0 || len(w.store.List()) > 0 {
		t.Error("the machine is on the Network")
	}
}

// All addresses of the first block and of the second are used; then there are none, and the machine
// that has none gets the first that is free again.
func TestMachinesUseBlocksUp(t *testing.T) {
	w := newDynamicWorld(t)
	const machines = 17 // of which 16 have an address
	name := func(i int) string { return fmt.Sprintf("guest-52-54-00-aa-01-%02x", i) }
	count := func() (n int) {
		for i := range machines {
			if w.bound(name(i)) {
				n++
			}
		}
		return n
	}
	for i := range machines {
		w.plugMachine(fmt.Sprint("tap", i), "shop", fmt.Sprintf("52:54:00:aa:01:%02x", i))
	}
	kubetest.Eventually(t, "all addresses are used", func() bool { return count() == 16 && w.hasEvent("AddressesExhausted") })
	for i := range machines {
		if w.bound(name(i)) {
			w.unplug(fmt.Sprint("tap", i))
			kubetest.Eventually(t, "the last machine has what the first has left", func() bool { return count() == 16 })
			return
		}
	}
}
