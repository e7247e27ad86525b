// SPDX-License-Identifier: Apache-2.0

package foreignbridge

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/ovsfake"
	"coelan.io/coelan/internal/intent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// links are a fake of the node's interfaces.
type links struct {
	cards map[string]hostnet.Card
	up    []string
	err   error
}

func (l *links) Card(name string) (hostnet.Card, error) {
	c, ok := l.cards[name]
	if !ok {
		return c, errors.New("interface " + name + " does not exist on this node")
	}
	return c, nil
}

func (l *links) SetUp(name string) error {
	l.up = append(l.up, name)
	return l.err
}

type world struct {
	*Bridges
	t     *testing.T
	ovs   *ovsfake.OVS
	db    *ovsdb.Client
	links *links
}

// newWorld has bridges of other programs, with the name of a bridge, its datapath and its ports.
func newWorld(t *testing.T, bridges ...[]string) *world {
	t.Helper()
	w := &world{t: t, ovs: ovsfake.New(t), links: &links{cards: map[string]hostnet.Card{"eth2": {Name: "eth2"}}}}
	for _, b := range bridges {
		w.must(w.ovs.AddBridge(b[0], b[1], b[2:]...))
	}
	w.db = ovsdb.Open(ovsdb.Options{Socket: w.ovs.Socket(), Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(w.db.Close)
	w.Bridges = New(w.db, w.links, func() string { return "netdev" })
	return w
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

var (
	testBridge = attachment.ForeignBridge{
		Name: "brk8s", ConfName: "odl", Controller: "tcp:192.0.2.1:6653", Uplink: "eth2", ClusterID: "c1",
	}
	testPod = attachment.Attachment{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: "a", IfName: "eth0"}, ConfName: "odl", PodUID: "u", PodNamespace: "shop",
			PodName: "web-0", Netns: "/run/netns/a", HostInterface: "veth12345678", MTU: 1450,
			Routes: []attachment.Route{{Destination: netip.MustParsePrefix("10.11.0.0/16")}},
		},
		MAC: intent.MAC{0x0a, 0xce, 10, 11, 1, 9}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.11.1.9/24")},
		Gateways: []netip.Addr{{}}, Created: time.Unix(1, 0).UTC(),
	}
)

// Ports have COE's external_ids, and an attachment can be read from them again.
func TestPlug(t *testing.T) {
	w := newWorld(t)
	w.must(w.Usable(w.ctx(), testBridge))
	w.must(w.Plug(w.ctx(), testBridge, testPod))
	w.must(w.Check(w.ctx(), testBridge, testPod))
	ports, err := w.db.ForeignPorts(w.ctx())
	w.must(err)
	i := slices.IndexFunc(ports, func(p ovsdb.PortState) bool { return p.Name == "veth12345678" })
	for key, want := range map[string]string{
		"iface-id": "c1:web-0", "attached-mac": "0a:ce:0a:0b:01:09", "ip-address": "10.11.1.9", "coelan-container-id": "a",
		"coelan-interface": "eth0",
	} {
		if got := ports[i].ExternalIDs[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if diff := cmp.Diff([]string{"veth12345678", "eth2"}, w.links.up); diff != "" {
		t.Errorf("set up (-want +got):\n%s", diff)
	}
	got, err := w.Attached(w.ctx())
	w.must(err)
	if diff := cmp.Diff([]attachment.Attachment{testPod}, got, cmp.Comparer(func(x, y netip.Addr) bool { return x == y }),
		cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
		t.Errorf("attached (-want +got):\n%s", diff)
	}
	w.must(w.Unplug(w.ctx(), testPod))
	w.must(w.Close(w.ctx(), testPod))
	if got, err = w.Attached(w.ctx()); err != nil || len(got) != 0 {
		t.Errorf("attached: %v, %v", got, err)
	}
	if err := w.Check(w.ctx(), testBridge, testPod); err == nil || !strings.Contains(err.Error(), "port veth12345678 is missing") {
		t.Errorf("CHECK: %v", err)
	}
}

// An interface that the node needs, or that is not there, is refused before anything is made.
func TestUplinksThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		card hostnet.Card
		want string
	}{
		"address":  {hostnet.Card{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}, "interface eth2 has the address 192.0.2.7: the node would be cut off"},
		"route":    {hostnet.Card{Default: true}, "interface eth2 has a default route: the node would be cut off"},
		"bond":     {hostnet.Card{Master: "bond0"}, "is a part of bond0"},
		"VLAN":     {hostnet.Card{Uppers: []string{"eth2.7"}}, "carries eth2.7"},
		"loopback": {hostnet.Card{Loopback: true}, "is the loopback"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.links.cards["eth2"] = tt.card
			w.refuses(testBridge, tt.want)
		})
	}
	w := newWorld(t, []string{"br-x", "netdev", "eth5"})
	missing := testBridge
	missing.Uplink = "eth9"
	w.refuses(missing, "externalIntf: interface eth9 does not exist on this node")
	bridge := testBridge
	bridge.Uplink = "br-x"
	w.refuses(bridge, "externalIntf br-x is a bridge")
}

func (w *world) refuses(f attachment.ForeignBridge, want string) {
	w.t.Helper()
	before := w.ovs.Writes()
	for what, err := range map[string]error{"Plug": w.Plug(w.ctx(), f, testPod), "Usable": w.Usable(w.ctx(), f)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			w.t.Errorf("%s: error %v, want %s", what, err, want)
		}
	}
	if n := w.ovs.Writes() - before; n != 0 {
		w.t.Errorf("%d writes", n)
	}
}

// A card that is in the bridge has moved its addresses there, or was put there by an administrator.
func TestUplinkThatIsThere(t *testing.T) {
	w := newWorld(t, []string{"brk8s", "system", "eth2"})
	w.links.cards["eth2"] = hostnet.Card{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	w.must(w.Plug(w.ctx(), testBridge, testPod))
	for bridge, want := range map[string]string{"brk8s": "system", "brnew": "netdev"} {
		if got, err := w.Datapath(w.ctx(), bridge); err != nil || got != want {
			t.Errorf("datapath of %s is %s, %v", bridge, got, err)
		}
	}
}

// external_ids that were edited are an error, and hide no other pod.
func TestEditedExternalIDs(t *testing.T) {
	w := newWorld(t)
	w.must(w.Plug(w.ctx(), testBridge, testPod))
	w.must(w.ovs.AddPort("brk8s", "vethbad", map[string]string{ovsdb.OwnerKey: ovsdb.ForeignValue, "coelan-attachment": "{"}))
	w.must(w.ovs.AddPort("brk8s", "vethother", map[string]string{ovsdb.OwnerKey: ovsdb.ForeignValue, "coelan-attachment": `{"hostInterface":"x"}`}))
	changes, stop := w.db.Watch()
	defer stop()
	for ctx := w.ctx(); ; {
		ports, err := w.db.ForeignPorts(ctx)
		w.must(err)
		if len(ports) == 4 {
			break
		}
		select {
		case <-changes:
		case <-ctx.Done():
			t.Fatalf("ports %v", ports)
		}
	}
	list, err := w.Attached(w.ctx())
	if len(list) != 1 || list[0].PodName != "web-0" || err == nil ||
		!strings.Contains(err.Error(), "port vethbad on bridge brk8s: external_ids:coelan-attachment is not what the agent wrote") ||
		!strings.Contains(err.Error(), "port vethother on bridge brk8s") {
		t.Errorf("attached %v, error %v", list, err)
	}
}

// A port with an interface that cannot be set up is taken back.
func TestInterfaceThatVanishes(t *testing.T) {
	w := newWorld(t)
	w.links.err = errors.New("interface veth12345678: no such device")
	if err := w.Plug(w.ctx(), testBridge, testPod); err == nil || !strings.Contains(err.Error(), "attach shop/web-0/eth0: interface veth12345678") {
		t.Errorf("error %v", err)
	}
	if list, err := w.Attached(w.ctx()); err != nil || len(list) != 0 {
		t.Errorf("attached %v, %v", list, err)
	}
}
