// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a running Binder of node n1 with a fake Open vSwitch.
type world struct {
	t     *testing.T
	api   *kubetest.API
	store *attachment.Store
	view  *apicache.View
	path  string
	*Binder

	mu     sync.Mutex
	guests map[string]backend.Guest
	// numbers are those that were asked for, by interface.
	numbers map[string]int
	flows   map[string]attachment.Attachment
	events  []string
	nodes   []string
	// refuses has Connect fail as if the switch refused the flows.
	refuses bool
	// boundFirst has Connect fail unless the API says that the Port is bound.
	boundFirst bool
	// leases are those of machines; nil: the backend has none.
	leases Leases
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := stopped(t)
	t.Cleanup(w.start())
	return w
}

// stopped is a world before its Binder runs.
func stopped(t *testing.T) *world {
	return &world{
		t: t, api: kubetest.New("n1"), path: filepath.Join(t.TempDir(), "state.db"), guests: map[string]backend.Guest{}, numbers: map[string]int{},
		flows: map[string]attachment.Attachment{}, nodes: []string{"n1", "n2"},
	}
}

// start runs a Binder with what is on disk, until the returned function is called.
func (w *world) start() (stop func()) {
	w.t.Helper()
	var err error
	if w.store, err = attachment.Open(w.path); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if w.view, err = apicache.New(log, w.store); err != nil {
		w.t.Fatal(err)
	}
	w.Binder = New(Options{
		Log: log, Node: "n1", Mapping: config.MapFlat, Guests: w, API: w.api, Blocks: w, View: w.view, Store: w.store, Flows: w, Events: w,
		MTU: func() int { return 1450 }, BoundFirst: w.boundFirst,
		Leases: w.leases,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	hide := w.api.Show(w.view.Updates(func() {}), nil)
	return sync.OnceFunc(func() {
		hide()
		cancel()
		if err := errors.Join(<-done, w.view.Save(), w.store.Close()); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) Guests(context.Context) ([]backend.Guest, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []backend.Guest
	for _, p := range w.guests {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b backend.Guest) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (w *world) RequestNumber(_ context.Context, name string, number int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.guests[name]
	if !ok {
		return errors.New("is gone")
	}
	p.Number, w.numbers[name] = number, number
	w.guests[name] = p
	return nil
}

func (w *world) Connect(_ context.Context, at attachment.Attachment) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses {
		return &backend.RefusedError{Problem: "the switch refuses it: OFPBAC_BAD_ARGUMENT"}
	}
	if s := w.status(at.PortName); w.boundFirst && (s.Phase != v1alpha1.PortBound || s.Node != "n1") {
		return errors.New("the controller does not know that it is bound")
	}
	w.flows[at.PortKey()] = at
	return nil
}

func (w *world) Disconnect(_ context.Context, at attachment.Attachment) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.flows, at.PortKey())
	return nil
}

func (w *world) Network(name string) (intent.Network, bool) {
	n := intent.Network{Name: "lan", ID: 2, Subnets: []intent.NetworkSubnet{{
		Prefix: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"),
	}}}
	if name == "office" {
		return intent.Network{Name: "office", ID: 3, Physical: "dc", Leased: true}, true
	}
	return n, name == "lan"
}

func (w *world) NodeExists(name string) bool { return slices.Contains(w.nodes, name) }

func (w *world) PortWarning(namespace, name, _, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, namespace+"/"+name+" "+reason+": "+message)
}

func (w *world) ObjectWarning(_, kind, namespace, name, reason, message string) {
	w.PortWarning(namespace, name, kind, reason, message)
}

// blocks are what this node has of the Network lan.
var blocks = []string{"10.0.0.16/29", "10.0.0.32/29"}

// Ranges are the first block, and the second one when that is exhausted.
func (w *world) Ranges(_ context.Context, network intent.Network, exhausted []netip.Prefix) ([]ipam.Range, error) {
	subnet := network.Subnets[0].Prefix
	for i, text := range blocks {
		p := netip.MustParsePrefix(text)
		if slices.Contains(exhausted, p) {
			continue
		}
		var ranges []ipam.Range
		for _, text := range blocks[:i+1] {
			r, err := ipam.Block{Prefix: netip.MustParsePrefix(text), Subnet: subnet, Gateway: network.Subnets[0].Gateway}.Range()
			if err != nil {
				return nil, err
			}
			ranges = append(ranges, r)
		}
		return ranges, nil
	}
	return nil, &blockipam.ExhaustedError{Network: network.Name, Subnet: subnet}
}

// plug puts an interface on the bridge, or changes it.
func (w *world) plug(name, ifaceID string, actual int) {
	w.mu.Lock()
	w.guests[name] = backend.Guest{Name: name, ID: ifaceID, Number: actual}
	w.mu.Unlock()
	w.Kick()
}

func (w *world) unplug(name string) {
	w.mu.Lock()
	delete(w.guests, name)
	w.mu.Unlock()
	w.Kick()
}

// port is a Port as the controller leaves it.
func port(name, address string, change ...func(*v1alpha1.Port)) *v1alpha1.Port {
	p := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.PortSpec{Network: "lan"},
		Status: v1alpha1.PortStatus{Phase: v1alpha1.PortReady, MAC: "52:54:00:00:00:" + address[len(address)-2:], Addresses: []string{address}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func (w *world) status(name string) v1alpha1.PortStatus {
	for _, p := range w.api.AllPorts() {
		if p.Name == name {
			return p.Status
		}
	}
	return v1alpha1.PortStatus{}
}

// connected is the OpenFlow port of a Port's flows, 0 if it has none.
func (w *world) connected(name string) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flows["shop/"+name].OFPort
}

func (w *world) hasEvent(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e string) bool { return strings.Contains(e, text) })
}

func TestBindAndUnbind(t *testing.T) {
	w := newWorld(t)
	w.plug("tap0", "shop/vm", 5)
	w.plug("tap9", "not-a-key", 6)
	w.plug("tap8", "shop/nobody", 7)
	w.api.Add(port("vm", "10.0.0.20"))
	kubetest.Eventually(t, "the Port is bound", func() bool {
		s := w.status("vm")
		return s.Phase == v1alpha1.PortBound && s.Node == "n1" && s.BoundTime != nil && w.connected("vm") >= datapath.FirstPodPort
	})
	w.mu.Lock()
	if got := w.numbers["tap0"]; got != int(w.flows["shop/vm"].OFPort) {
		t.Errorf("the interface has port %d, flows are for %d", got, w.flows["shop/vm"].OFPort)
	}
	if w.numbers["tap8"] != 0 || w.numbers["tap9"] != 0 {
		t.Error("interfaces of others were changed")
	}
	w.mu.Unlock()
	w.unplug("tap0")
	kubetest.Eventually(t, "the Port is ready for another", func() bool {
		s := w.status("vm")
		return s.Phase == v1alpha1.PortReady && s.Node == "" && s.BoundTime == nil && w.connected("vm") == 0
	})
	w.plug("tap1", "shop/vm", 8)
	kubetest.Eventually(t, "the Port is bound again", func() bool { return w.connected("vm") != 0 })
	// The tap of a machine that is gone: ovs-vswitchd cannot open it.
	w.plug("tap1", "shop/vm", -1)
	kubetest.Eventually(t, "the Port is unbound", func() bool { return w.connected("vm") == 0 })
	w.plug("tap1", "shop/vm", 8)
	kubetest.Eventually(t, "the Port is bound again", func() bool { return w.connected("vm") != 0 })
	w.api.RemovePort("shop/vm")
	kubetest.Eventually(t, "the flows are gone", func() bool { return w.connected("vm") == 0 && len(w.store.List()) == 0 })
}

func TestBindingOutlivesRestarts(t *testing.T) {
	w := stopped(t)
	stop := w.start()
	w.plug("tap0", "shop/vm", 5)
	w.api.Add(port("vm", "10.0.0.20"))
	kubetest.Eventually(t, "the Port is bound", func() bool { return w.status("vm").Phase == v1alpha1.PortBound })
	number := w.connected("vm")
	stop()
	w.api.SetAway(true)
	t.Cleanup(w.start())
	w.Kick()
	if at, ok := w.store.Get(attachment.PortKey("shop", "vm")); !ok || at.OFPort != number {
		t.Errorf("remembered: %+v, %v; want port %d", at, ok, number)
	}
	w.unplug("tap0")
	kubetest.Eventually(t, "the Port is unbound while the API is away", func() bool { return w.connected("vm") == 0 })
	w.api.SetAway(false)
	kubetest.Eventually(t, "the API is told", func() bool { return w.status("vm").Phase == v1alpha1.PortReady })
}

func TestConflicts(t *testing.T) {
	w := newWorld(t)
	onN2 := func(p *v1alpha1.Port) { p.Status.Node, p.Status.Phase = "n2", v1alpha1.PortBound }
	forN2 := func(p *v1alpha1.Port) { p.Spec.Node = "n2" }
	w.api.Add(port("there", "10.0.0.21", onN2), port("for-n2", "10.0.0.22", forN2), port("twice", "10.0.0.23"))
	w.api.Add(port("of-lost-node", "10.0.0.24", func(p *v1alpha1.Port) { p.Status.Node = "n3" }))
	w.plug("tap1", "shop/there", 1)
	w.plug("tap2", "shop/for-n2", 2)
	w.plug("tap3", "shop/twice", 3)
	w.plug("tap4", "shop/twice", 4)
	w.plug("tap5", "shop/of-lost-node", 5)
	kubetest.Eventually(t, "who may be bound is", func() bool { return w.connected("twice") != 0 && w.connected("of-lost-node") != 0 })
	kubetest.Eventually(t, "the conflicts are told", func() bool {
		return w.hasEvent("shop/there BoundElsewhere: it is bound on node n2") && w.hasEvent("shop/for-n2 BoundElsewhere: it is for node n2 only") &&
			w.hasEvent("interfaces tap3 and tap4") && strings.HasPrefix(w.status("there").LastError, "BoundElsewhere: ")
	})
	if s := w.status("there"); s.Node != "n2" || s.Phase != v1alpha1.PortBound {
		t.Errorf("the status of a Port that another node has bound: %+v", s)
	}
	if w.connected("there") != 0 || w.connected("for-n2") != 0 {
		t.Error("a Port of another node has flows")
	}
	w.unplug("tap1")
	kubetest.Eventually(t, "the complaint is taken back", func() bool { return w.status("there").LastError == "" })
}

func TestAddressOfAPodOnTheNode(t *testing.T) {
	w := newWorld(t)
	_, err := w.store.Allocate(attachment.Plan{
		Spec:      attachment.Spec{Key: attachment.Key{ContainerID: "c", IfName: "net1"}, PodNamespace: "shop", PodName: "p", NetworkName: "lan", BlockSpace: true},
		Requested: attachment.Requested{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.20")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.api.Add(port("vm", "10.0.0.20"))
	w.plug("tap0", "shop/vm", 5)
	kubetest.Eventually(t, "the conflict is told", func() bool { return w.hasEvent("AddressTaken") && w.status("vm").LastError != "" })
	if w.connected("vm") != 0 {
		t.Error("two ports have one address")
	}
}

// A Port says so if the switch refuses its flows, and is bound once the switch takes them.
func TestRefusedPort(t *testing.T) {
	w := newWorld(t)
	w.refuse(true)
	w.api.Add(port("vm", "10.0.0.20"))
	w.plug("tap0", "shop/vm", 5)
	kubetest.Eventually(t, "the refusal is told", func() bool {
		return strings.HasPrefix(w.status("vm").LastError, "RefusedBySwitch: ") &&
			strings.Contains(w.status("vm").LastError, "OFPBAC_BAD_ARGUMENT")
	})
	if s := w.status("vm"); s.Node != "" || s.Phase == v1alpha1.PortBound {
		t.Errorf("a Port without flows is bound: %+v", s)
	}
	w.refuse(false)
	kubetest.Eventually(t, "the Port is bound", func() bool {
		s := w.status("vm")
		return s.LastError == "" && s.Phase == v1alpha1.PortBound && w.connected("vm") != 0
	})
}

// Where the controller connects Ports, it learns from the API which are bound.
func TestBoundBeforeItForwards(t *testing.T) {
	w := stopped(t)
	w.boundFirst = true
	t.Cleanup(w.start())
	w.api.Add(port("vm", "10.0.0.20"))
	w.refuse(true)
	w.plug("tap0", "shop/vm", 5)
	kubetest.Eventually(t, "the refusal is told", func() bool { return strings.HasPrefix(w.status("vm").LastError, "RefusedBySwitch: ") })
	w.refuse(false)
	kubetest.Eventually(t, "the Port is connected", func() bool { return w.connected("vm") != 0 && w.status("vm").LastError == "" })
	if s := w.status("vm"); s.Phase != v1alpha1.PortBound || s.Node != "n1" || s.BoundTime == nil {
		t.Errorf("status %+v", s)
	}
}

func (w *world) refuse(refuses bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = refuses
}
