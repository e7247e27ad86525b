// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// disk is an apicache.Store in memory.
type disk map[string]map[string][]byte

func (d disk) Objects(kind string) map[string][]byte { return maps.Clone(d[kind]) }

func (d disk) ChangeObjects(kind string, objects map[string][]byte, gone []string) error {
	if d[kind] == nil {
		d[kind] = map[string][]byte{}
	}
	maps.Copy(d[kind], objects)
	for _, name := range gone {
		delete(d[kind], name)
	}
	return nil
}

// world is a Source of the node n1, and what it calls.
type world struct {
	*Source
	t     *testing.T
	api   kube.Updates
	calls []string
	log   strings.Builder
}

func newWorld(t *testing.T, d disk) *world {
	t.Helper()
	return newWorldWith(t, d, config.Default())
}

func newWorldWith(t *testing.T, d disk, c config.Config) *world {
	t.Helper()
	view, err := apicache.New(slog.New(slog.DiscardHandler), d)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.Source = New(Options{
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Node: "n1", Config: c, Intent: intent.NewStore(), View: view,
		Warn: func(string, error) {}, Judged: func(error) {},
		NodesChanged: func() { w.calls = append(w.calls, "nodes") },
		Changed:      func() { w.calls = append(w.calls, "intent") },
	})
	w.api = view.Updates(w.Refresh)
	w.update(func(tx *intent.Tx) { Settings(c, tx) })
	w.update(w.Load)
	return w
}

func (w *world) update(change func(tx *intent.Tx)) {
	w.t.Helper()
	if _, err := w.Intent.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		w.t.Fatal(err)
	}
}

// portNodes are the nodes of the Ports in intent.
func (w *world) portNodes() map[string]string {
	got := map[string]string{}
	for p := range w.Intent.State().Ports().All() {
		got[p.ID] = p.Node
	}
	return got
}

func node(name string, n int, change func(*corev1.Node)) *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", n)}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", n)}}},
	}
	if change != nil {
		change(o)
	}
	return o
}

func lan() ([]*v1alpha1.Router, []*v1alpha1.Network) {
	n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Status: v1alpha1.NetworkStatus{ID: 2}}
	n.Spec.Subnets = []v1alpha1.Subnet{{CIDR: "10.1.0.0/24"}}
	return []*v1alpha1.Router{{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Status: v1alpha1.RouterStatus{ID: 2}}}, []*v1alpha1.Network{n}
}

// port is a user's Port that a node has bound, and the claim of its address.
func port(name, address, node string) (*v1alpha1.Port, *v1alpha1.AddressBlock) {
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.Network, p.Status.Node = "lan", node
	p.Status.Addresses, p.Status.MAC = []string{address}, "02:00:00:00:00:"+address[len(address)-2:]
	b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "lan-" + strings.ReplaceAll(address, ".", "-") + "-32"}}
	b.Spec.Network, b.Spec.CIDR, b.Spec.Port = "lan", address+"/32", "shop/"+name
	return p, b
}

// Ports of other nodes come and go with the API; those of this node do not.
func TestRefreshLeavesOwnPorts(t *testing.T) {
	w := newWorld(t, disk{})
	own := func(id string) intent.Port { return intent.Port{ID: id, Node: "n1", Network: "lan"} }
	routers, networks := lan()
	w.api.Routers(kube.Whole(routers))
	w.api.Networks(kube.Whole(networks))
	w.update(func(tx *intent.Tx) {
		tx.SetPort(own("container/eth0"))
		tx.SetPort(own(translate.RemoteID("shop", "mine")))
	})
	mine, ofMine := port("mine", "10.1.0.11", "n2")
	other, ofOther := port("other", "10.1.0.12", "n2")
	w.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{ofMine, ofOther}))
	check := func(when string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, w.portNodes()); diff != "" {
			t.Errorf("%s: ports by node (-want +got):\n%s", when, diff)
		}
	}
	w.api.Ports(kube.Whole([]*v1alpha1.Port{mine, other}))
	check("bound here and there", map[string]string{"container/eth0": "n1", "port:shop/mine": "n1", "port:shop/other": "n2"})
	w.update(func(tx *intent.Tx) { tx.SetPort(own(translate.RemoteID("shop", "other"))) })
	w.Refresh()
	check("taken over", map[string]string{"container/eth0": "n1", "port:shop/mine": "n1", "port:shop/other": "n1"})
	w.update(func(tx *intent.Tx) {
		tx.DeletePort(translate.RemoteID("shop", "mine"))
		tx.DeletePort(translate.RemoteID("shop", "other"))
	})
	w.Refresh()
	check("given up", map[string]string{"container/eth0": "n1", "port:shop/mine": "n2", "port:shop/other": "n2"})
	w.update(func(tx *intent.Tx) { tx.SetPort(own(translate.RemoteID("shop", "mine"))) })
	w.api.Ports(kube.Whole[*v1alpha1.Port](nil))
	check("gone from the API", map[string]string{"container/eth0": "n1", "port:shop/mine": "n1"})
	w.update(func(tx *intent.Tx) { tx.DeletePort(translate.RemoteID("shop", "mine")) })
	w.Refresh()
	check("gone altogether", map[string]string{"container/eth0": "n1"})
}

// What was known when the agent ran last is intent before the API is heard of, and stays if the API
// says the same.
func TestLoad(t *testing.T) {
	d := disk{}
	w := newWorld(t, d)
	routers, networks := lan()
	nodes := []*corev1.Node{node("n1", 1, nil), node("n2", 2, nil)}
	p, b := port("vm", "10.1.0.11", "n2")
	tell := func(w *world) {
		w.api.Nodes(kube.Whole(nodes))
		w.api.Namespaces(kube.Whole[*corev1.Namespace](nil))
		w.api.Routers(kube.Whole(routers))
		w.api.Networks(kube.Whole(networks))
		w.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{b}))
		w.api.Ports(kube.Whole([]*v1alpha1.Port{p}))
	}
	tell(w)
	if err := w.View.Save(); err != nil {
		t.Fatal(err)
	}
	again := newWorld(t, d)
	s := again.Intent.State()
	if _, ok := s.Nodes().Get("n2"); !ok || s.Networks().Len() != 2 || s.Routers().Len() != 2 || len(again.portNodes()) != 1 || again.NodesListed() || again.Own() == nil {
		t.Fatalf("%d nodes, %d Networks, %d Routers, Ports %v", s.Nodes().Len(), s.Networks().Len(), s.Routers().Len(), again.portNodes())
	}
	tell(again)
	if now := again.Intent.State(); now != s {
		t.Errorf("the same of the API is another intent: %+v", intent.Diff(s, now))
	}
	// Each kind that is heard of for the first time is passed on, as parts wait for it.
	if want := []string{"nodes", "intent", "intent", "intent", "intent", "intent", "intent"}; !slices.Equal(again.calls, want) || !again.NodesListed() {
		t.Errorf("calls %v, want %v", again.calls, want)
	}
}

// The addresses of gateways follow Routers and blocks, are known at a start without the API, and
// are no addresses of Ports.
func TestGatewayAddresses(t *testing.T) {
	d := disk{}
	w := newWorld(t, d)
	routers, networks := lan()
	routers[0].Spec.Gateway = &v1alpha1.RouterGateway{Network: "office"}
	vm, block := port("vm", "10.1.0.11", "n2")
	// The status of the Port says that it has the address, which is a gateway's.
	block.Spec.Port, block.Spec.Gateway = "", "lan/n1"
	own := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "office-192-0-2-10-32"}}
	own.Spec.Network, own.Spec.CIDR, own.Spec.Gateway = "office", "192.0.2.10/32", "lan/n1"
	check := func(when string, w *world, want ...string) {
		t.Helper()
		var got []string
		for g := range w.Intent.State().GatewayAddresses().All() {
			got = append(got, fmt.Sprintf("%s/%s %s %s", g.Router, g.Node, g.Network, g.Address))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	w.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{own, block}))
	check("before the Router", w)
	w.api.Routers(kube.Whole(routers))
	w.api.Networks(kube.Whole(networks))
	w.api.Ports(kube.Whole([]*v1alpha1.Port{vm}))
	check("all", w, "lan/n1 office 192.0.2.10")
	if got := w.portNodes(); len(got) != 0 {
		t.Errorf("a Port has the address of a gateway: %v", got)
	}
	if err := w.View.Save(); err != nil {
		t.Fatal(err)
	}
	again := newWorld(t, d)
	check("after a restart without the API", again, "lan/n1 office 192.0.2.10")
	again.api.Routers(kube.Whole([]*v1alpha1.Router{{ObjectMeta: routers[0].ObjectMeta, Status: routers[0].Status}}))
	check("without the Router's gateway", again)
	again.api.Routers(kube.Whole(routers))
	check("with it again", again, "lan/n1 office 192.0.2.10")
	again.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{block}))
	check("without the block", again)
}

// The addresses of a centralized gateway follow Routers, blocks, Networks and nodes, and are known
// at a start without the API.
func TestCentralizedGateway(t *testing.T) {
	d := disk{}
	w := newWorld(t, d)
	routers, networks := lan()
	routers[0].Spec.Gateway = &v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT}
	routers[0].Status.GatewayAddresses = []string{"192.0.2.10"}
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	office.Spec.Type, office.Spec.PhysicalNetwork = v1alpha1.Flat, "floor2"
	block := func(active string) *v1alpha1.AddressBlock {
		b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "office-192-0-2-10-32"}}
		b.Spec.Network, b.Spec.CIDR, b.Spec.Gateway, b.Status.ActiveNode = "office", "192.0.2.10/32", "lan/*", active
		return b
	}
	connected := func(o *corev1.Node) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationPhysicalNetworks, "floor2")
	}
	check := func(when string, w *world, want ...string) {
		t.Helper()
		var got []string
		for e := range w.Intent.State().EgressAddresses().All() {
			got = append(got, fmt.Sprintf("%s %s %v %q", e.Router, e.Address, e.Nodes, e.Active))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	w.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{block("")}))
	w.api.Networks(kube.Whole(append(networks, office)))
	check("before the Router", w)
	w.api.Routers(kube.Whole(routers))
	check("without nodes", w, `lan 192.0.2.10 [] ""`)
	w.api.Nodes(kube.Whole([]*corev1.Node{node("n1", 1, connected), node("n2", 2, nil), node("n3", 3, connected)}))
	check("all", w, `lan 192.0.2.10 [n1 n3] ""`)
	w.api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{block("n3")}))
	check("a node has reported", w, `lan 192.0.2.10 [n1 n3] "n3"`)
	if err := w.View.Save(); err != nil {
		t.Fatal(err)
	}
	again := newWorld(t, d)
	check("after a restart without the API", again, `lan 192.0.2.10 [n1 n3] "n3"`)
	again.api.Nodes(kube.Whole([]*corev1.Node{node("n1", 1, nil), node("n2", 2, connected), node("n3", 3, connected)}))
	check("another node is connected", again, `lan 192.0.2.10 [n2 n3] "n3"`)
	again.api.Blocks(kube.Whole[*v1alpha1.AddressBlock](nil))
	check("without the block", again)
}

// The pods of this node need its gateway, also when its object is gone.
func TestOwnNodeIsKept(t *testing.T) {
	w := newWorld(t, disk{})
	own := func() intent.Node { n, _ := w.Intent.State().Nodes().Get("n1"); return n }
	n2 := node("n2", 2, nil)
	w.api.Nodes(kube.Whole([]*corev1.Node{node("n1", 1, nil), n2}))
	want := own()
	if len(want.Subnets) != 1 || w.OwnProblem() != nil {
		t.Fatalf("%+v, %v", want, w.OwnProblem())
	}
	for _, tc := range []struct {
		what  string
		nodes []*corev1.Node
		bad   bool
	}{
		{"gone", []*corev1.Node{n2}, true},
		{"gone, and the other one, too", nil, true},
		{"without podCIDRs", []*corev1.Node{n2, node("n1", 1, func(n *corev1.Node) { n.Spec.PodCIDRs = nil })}, true},
		{"back", []*corev1.Node{n2, node("n1", 1, nil)}, false},
		{"without addresses", []*corev1.Node{n2, node("n1", 1, func(n *corev1.Node) { n.Status.Addresses = nil })}, true},
	} {
		w.api.Nodes(kube.Whole(tc.nodes))
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(own())); diff != "" {
			t.Errorf("%s (-before +after):\n%s", tc.what, diff)
		}
		if err := w.OwnProblem(); (err != nil) != tc.bad {
			t.Errorf("%s: problem %v", tc.what, err)
		}
		if n := w.Intent.State().Nodes().Len(); n != 1+len(slices.DeleteFunc(slices.Clone(tc.nodes), func(n *corev1.Node) bool { return n.Name == "n1" })) {
			t.Errorf("%s: %d nodes", tc.what, n)
		}
	}
}

// A Network of a physical network is intent on nodes that have an uplink to it, also when what was
// known before is all there is.
func TestNetworksFollowUplinks(t *testing.T) {
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}, Status: v1alpha1.NetworkStatus{ID: 7}}
	office.Spec.Type, office.Spec.PhysicalNetwork = v1alpha1.Flat, "floor2"
	with := config.Default()
	with.BridgeMappings = map[string]string{"floor2": "br-floor2"}
	d := disk{}
	for _, tc := range []struct {
		what   string
		config config.Config
		want   bool
	}{
		{"without an uplink", config.Default(), false},
		{"with an uplink", with, true},
		{"without an uplink again", config.Default(), false},
	} {
		w := newWorldWith(t, d, tc.config)
		check := func(from string) {
			t.Helper()
			if _, got := w.Intent.State().Networks().Get("office"); got != tc.want {
				t.Errorf("%s, from %s: the Network is intent: %t", tc.what, from, got)
			}
		}
		if len(d) > 0 {
			check("what is remembered")
		}
		w.api.Networks(kube.Whole([]*v1alpha1.Network{office}))
		check("the API")
		if err := w.View.Save(); err != nil {
			t.Fatal(err)
		}
	}
}

// A value that cannot be used is logged once, also when other objects change.
func TestProblemsAreLoggedOnce(t *testing.T) {
	w := newWorld(t, disk{})
	routers, networks := lan()
	networks[0].Spec.Subnets = append(networks[0].Spec.Subnets, v1alpha1.Subnet{CIDR: "nonsense"})
	w.api.Routers(kube.Whole(routers))
	w.api.Networks(kube.Whole(networks))
	w.api.Nodes(kube.Whole([]*corev1.Node{node("n1", 1, nil), node("n2", 1, nil)}))
	w.api.Networks(kube.Whole(append(networks, &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "wan"}, Status: v1alpha1.NetworkStatus{ID: 3}})))
	w.api.Nodes(kube.Whole([]*corev1.Node{node("n1", 1, nil), node("n2", 1, nil), node("n3", 3, nil)}))
	if got := strings.Count(w.log.String(), "nonsense"); got != 1 || len(w.Problems()) != 3 {
		t.Errorf("told %d times, problems %q; log:\n%s", got, w.Problems(), &w.log)
	}
	networks[0] = networks[0].DeepCopy()
	networks[0].Spec.Subnets = networks[0].Spec.Subnets[:1]
	w.api.Networks(kube.Whole(networks))
	if got := w.Problems(); len(got) != 2 {
		t.Errorf("mended: %q", got)
	}
}
