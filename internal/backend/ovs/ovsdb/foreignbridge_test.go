// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovs/ovsfake"
	"coelan.io/coelan/internal/backend/ovs/rows"
)

var (
	testForeign = ForeignBridge{
		Name: "brk8s", Datapath: "netdev", Network: "odl", Controller: "tcp:192.0.2.1:6653", Manager: "tcp:192.0.2.1:6640",
	}
	testPod = Port{Name: "veth1", ExternalIDs: map[string]string{"iface-id": "c:web-0"}}
)

// foreignState is all of a database, in words.
func foreignState(t *testing.T, c *Client) []string {
	t.Helper()
	list := []string{}
	must(t, c.with(bound(t), func(_ context.Context, s *session) error {
		list = []string{}
		root, err := s.root()
		if err != nil {
			return err
		}
		for _, uuid := range root.Managers {
			target, _ := s.endpoint(rows.TableManager, uuid)
			list = append(list, "manager "+target)
		}
		for _, m := range s.rows(rows.TableBridge) {
			b := m.(*rows.Bridge)
			list = append(list, strings.TrimSpace("bridge "+b.Name+" "+b.ExternalIDs[OwnerKey]))
			for _, uuid := range b.Controllers {
				target, _ := s.endpoint(rows.TableController, uuid)
				list = append(list, b.Name+" controller "+target)
			}
			for _, port := range s.portsOf(b) {
				list = append(list, b.Name+" port "+port.Name)
			}
		}
		return nil
	}))
	slices.Sort(list)
	return list
}

func (v viewed) is(want ...string) {
	v.T.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), foreignState(v.T, v.Client)); diff != "" {
		v.T.Errorf("database (-want +got):\n%s", diff)
	}
}

// All that is missing is made at once, and not written again; another pod finds it.
func TestForeignBridgeIsMadeOnce(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	b := testForeign
	b.Uplink = "eth2"
	must(t, c.PlugForeign(bound(t), b, testPod))
	whole := []string{
		"bridge brk8s external-controller", "brk8s controller tcp:192.0.2.1:6653", "brk8s port eth2", "brk8s port veth1",
		"manager tcp:192.0.2.1:6640",
	}
	viewed{t, c}.is(whole...)
	must(t, c.CheckForeign(bound(t), b, testPod))
	before := o.Writes()
	must(t, c.PlugForeign(bound(t), b, testPod))
	if n := o.Writes() - before; n != 0 {
		t.Errorf("%d writes for what is as it should be", n)
	}
	must(t, c.PlugForeign(bound(t), b, Port{Name: "veth2"}))
	if n := o.Writes() - before; n != 1 {
		t.Errorf("%d writes for another pod", n)
	}
	viewed{t, c}.is(append([]string{"brk8s port veth2"}, whole...)...)
	ports, err := c.ForeignPorts(bound(t))
	must(t, err)
	if len(ports) != 3 || ports[1].Name != "veth1" || ports[1].Bridge != "brk8s" || ports[1].ExternalIDs["iface-id"] != "c:web-0" {
		t.Errorf("ports %+v", ports)
	}
	// They are not of Coelan's data path.
	if names := portNames(t, c); len(names) != 0 {
		t.Errorf("ports of the agent: %v", names)
	}
	must(t, c.UnplugForeign(bound(t), "veth1"))
	must(t, c.UnplugForeign(bound(t), "veth1"))
	must(t, c.CloseForeign(bound(t), "veth2"))
	must(t, c.CloseForeign(bound(t), "veth2"))
	until(t, c, func() bool { return !slices.Contains(foreignState(t, c), "brk8s port veth1") })
	says(t, c.CheckForeign(bound(t), b, testPod), "bridge brk8s: port veth1 is missing")
	must(t, c.RemoveForeign(bound(t)))
	must(t, c.RemoveForeign(bound(t)))
	viewed{t, c}.is()
}

// What another program has made is as good, and stays when Coelan goes.
func TestForeignBridgeOfOthers(t *testing.T) {
	o := ovsfake.New(t)
	must(t, o.AddBridge("brk8s", "netdev", "eth0"))
	must(t, o.AddController("brk8s", testForeign.Controller))
	must(t, o.AddController("brk8s", "tcp:192.0.2.9:6653"))
	must(t, o.AddManager(testForeign.Manager))
	must(t, o.AddManager("ptcp:6640:127.0.0.1"))
	c := openFake(t, o)
	theirs := []string{
		"bridge brk8s", "brk8s controller tcp:192.0.2.1:6653", "brk8s controller tcp:192.0.2.9:6653", "brk8s port eth0",
		"manager ptcp:6640:127.0.0.1", "manager tcp:192.0.2.1:6640",
	}
	viewed{t, c}.is(theirs...)
	must(t, c.PlugForeign(bound(t), testForeign, testPod))
	viewed{t, c}.is(append([]string{"brk8s port veth1"}, theirs...)...)
	other := testForeign
	other.Network, other.Controller, other.Manager = "other", "tcp:192.0.2.2:6653", "tcp:192.0.2.2:6640"
	must(t, c.PlugForeign(bound(t), other, testPod))
	viewed{t, c}.is(append([]string{"brk8s port veth1", "brk8s controller tcp:192.0.2.2:6653", "manager tcp:192.0.2.2:6640"}, theirs...)...)
	must(t, c.RemoveForeign(bound(t)))
	viewed{t, c}.is(theirs...)
}

// A bridge that was made stays while another program has a port on it.
func TestForeignBridgeInUse(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	must(t, c.PlugForeign(bound(t), testForeign, testPod))
	must(t, o.AddPort("brk8s", "tap0", nil))
	until(t, c, viewed{t, c}.has("tap0"))
	must(t, c.RemoveForeign(bound(t)))
	viewed{t, c}.is("bridge brk8s", "brk8s port tap0")
}

// When a configuration changes, what was made for it is replaced, and nothing else.
func TestForeignBridgeChanges(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	b := testForeign
	b.Uplink = "eth2"
	must(t, c.PlugForeign(bound(t), b, testPod))
	other := b
	other.Network, other.Controller, other.Manager, other.Uplink = "other", "tcp:192.0.2.2:6653", "", ""
	must(t, c.PlugForeign(bound(t), other, Port{Name: "veth2"}))
	b.Controller, b.Manager, b.Uplink = "ptcp:6653:127.0.0.1", "", "eth3"
	says(t, c.CheckForeign(bound(t), b, testPod), "its manager tcp:192.0.2.1:6640 is not wanted",
		"its controller tcp:192.0.2.1:6653 is not wanted", "controller ptcp:6653:127.0.0.1 is missing",
		"its uplink eth2 is not wanted", "interface eth3 is not a port of it")
	must(t, c.PlugForeign(bound(t), b, testPod))
	viewed{t, c}.is("bridge brk8s external-controller", "brk8s controller ptcp:6653:127.0.0.1", "brk8s controller tcp:192.0.2.2:6653",
		"brk8s port eth3", "brk8s port veth1", "brk8s port veth2")
	pod := testPod
	pod.ExternalIDs = map[string]string{"iface-id": "d:web-0"}
	says(t, c.CheckForeign(bound(t), b, pod), "port veth1 has other external_ids")
	must(t, c.PlugForeign(bound(t), b, pod))
	must(t, c.CheckForeign(bound(t), b, pod))
}

// What cannot work leaves the database as it was.
func TestForeignBridgesThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(o *ovsfake.OVS) error
		change  func(b *ForeignBridge)
		want    string
	}{
		"no datapath": {func(o *ovsfake.OVS) error { o.CannotMake("netdev"); return nil }, nil,
			`bridge brk8s: ovs-vswitchd cannot make it with datapath "netdev"`},
		"no interface": {func(o *ovsfake.OVS) error { o.Break("veth1", "No such device"); return nil }, nil,
			"bridge brk8s: port veth1: ovs-vswitchd: No such device"},
		"no uplink": {func(o *ovsfake.OVS) error { o.Break("eth2", "No such device"); return nil },
			func(b *ForeignBridge) { b.Uplink = "eth2" }, "bridge brk8s: port eth2: ovs-vswitchd: No such device"},
		"no interface on a bridge that is there": {func(o *ovsfake.OVS) error {
			o.Break("veth1", "No such device")
			return o.AddBridge("brk8s", "netdev", "eth0")
		}, nil, "port veth1: ovs-vswitchd: No such device"},
		"the port of another": {func(o *ovsfake.OVS) error { return o.AddBridge("brk8s", "netdev", "veth1") }, nil,
			"port veth1: exists and is not Coelan's"},
		"a port's name": {func(o *ovsfake.OVS) error { return o.AddBridge("br0", "netdev", "brk8s") }, nil,
			"a port of another bridge has this name"},
		"the uplink of another": {func(o *ovsfake.OVS) error { return o.AddBridge("br0", "netdev", "eth2") },
			func(b *ForeignBridge) { b.Uplink = "eth2" }, "interface eth2 is a port of bridge br0 already"},
	} {
		t.Run(name, func(t *testing.T) {
			o := ovsfake.New(t)
			must(t, tc.prepare(o))
			c := openFake(t, o)
			b := testForeign
			if tc.change != nil {
				tc.change(&b)
			}
			before := foreignState(t, c)
			says(t, c.PlugForeign(bound(t), b, testPod), tc.want)
			until(t, c, func() bool { return slices.Equal(before, foreignState(t, c)) })
		})
	}
}

// Bridges of Coelan's data path are refused, before anything is written.
func TestForeignBridgeOfTheAgent(t *testing.T) {
	o, c := withBridge(t)
	must(t, o.AddBridge("br-ext", "netdev", "eth1"))
	until(t, c, viewed{t, c}.has("br-ext"))
	must(t, c.EnsurePlaced(bound(t), PlacedPort{"br0", Patch("in", "out", 9)}, PlacedPort{"br-ext", Patch("out", "in", 0)}))
	before := o.Writes()
	for name, want := range map[string]string{
		"br0":    "bridge br0: it is one of the agent's own, and the agent is its only controller",
		"br-ext": "bridge br-ext: it has the agent's port out, and leads Networks of Coelan to a physical network",
	} {
		b := testForeign
		b.Name = name
		says(t, c.PlugForeign(bound(t), b, testPod), want)
		says(t, c.CheckForeign(bound(t), b, testPod), want)
		says(t, c.ForeignUsable(bound(t), b), want)
	}
	must(t, c.ForeignUsable(bound(t), testForeign))
	must(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth0", OFPort: 5}))
	says(t, c.UnplugForeign(bound(t), "veth0"), "port veth0: is not Coelan's (no external_ids:coelan-owner=external-controller)")
	must(t, c.RemoveForeign(bound(t)))
	if n := o.Writes() - before; n != 1 {
		t.Errorf("%d writes", n)
	}
}

// A port that works no more says why; it is tried again.
func TestForeignPortThatBreaks(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	must(t, c.PlugForeign(bound(t), testForeign, testPod))
	b := testForeign
	b.Name = "another"
	says(t, c.PlugForeign(bound(t), b, testPod), "bridge another: port veth1: is on another bridge")
	o.StopVswitchd()
	says(t, expiring(t, func(ctx context.Context) error { return c.PlugForeign(ctx, testForeign, Port{Name: "veth2"}) }),
		"port veth2: ovs-vswitchd did not open it: is it running?")
}
