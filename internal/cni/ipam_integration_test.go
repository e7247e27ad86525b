// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// referencePlugins is where Debian's package containernetworking-plugins has its programs.
const referencePlugins = "/usr/lib/cni"

// newDelegatingNode is a node with the plugin under all of its names, and those of the reference.
func newDelegatingNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t, t.TempDir())
	dir := filepath.Dir(n.plugin)
	for _, name := range wire.Types[1:] {
		n.must(os.Symlink("coelan-cni", filepath.Join(dir, name)))
	}
	n.runtime = libcni.NewCNIConfigWithCacheDir([]string{dir, referencePlugins}, filepath.Join(dir, "cache"),
		&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}})
	return n
}

// conf has the runtime use a configuration of one plugin.
func (n *node) conf(version, keys string) {
	n.t.Helper()
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion":%[1]q,"name":"odl","plugins":[
		{"cniVersion":%[1]q,"name":"odl","socket":%q,%s}]}`, version, n.socket(), keys))
	n.must(err)
	n.list = list
}

// leases are the addresses that host-local has given.
func (n *node) leases(dir string) []string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "odl"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if strings.ContainsAny(e.Name(), ".:") && e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last") {
			list = append(list, e.Name())
		}
	}
	return list
}

// Pods of all kinds of configurations have addresses of the reference plugin host-local, reach each
// other by them, and give them back.
func TestHostLocal(t *testing.T) {
	n := newDelegatingNode(t)
	for i, tt := range []struct{ version, keys string }{
		{"0.3.0", `"type":"odlovs-cni","mgrPort":6640,"ovsBridge":"br-int","ctlrActive":true`},
		{"0.4.0", `"type":"odlcoe","ovsConfig":{"isMaster":false,"ovsBridge":"br-int"}`},
		{"", `"type":"ovs-odl","bridge":"br-int","isDefaultGateway":true,"forceAddress":false,"ipMasq":true,"hairpinMode":true`},
		{"1.0.0", `"type":"coelan-cni"`},
	} {
		t.Run(tt.version, func(t *testing.T) {
			dir := t.TempDir()
			n.conf(tt.version, fmt.Sprintf(`%s,"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.244.1.0/24",
				"rangeStart":"10.244.1.50","rangeEnd":"10.244.1.51","gateway":"10.244.1.1","routes":[{"dst":"0.0.0.0/0"}]}`, tt.keys, dir))
			a, b, c := n.newPod(fmt.Sprint("a", i)), n.newPod(fmt.Sprint("b", i)), n.newPod(fmt.Sprint("c", i))
			n.must(n.add(a))
			n.must(n.add(b))
			if a.ip(0) != "10.244.1.50" || b.ip(0) != "10.244.1.51" {
				t.Errorf("addresses %s and %s", a.ip(0), b.ip(0))
			}
			transfer(t, a, b, b.ip(0))
			n.must(n.add(a)) // once more
			if got := n.leases(dir); !slices.Equal(got, []string{"10.244.1.50", "10.244.1.51"}) {
				t.Errorf("given: %v", got)
			}
			if err := n.add(c); err == nil || !strings.Contains(err.Error(), "ADD of the IPAM plugin host-local: failed to allocate for range") {
				t.Errorf("ADD without a free address: %v", err)
			}
			if tt.version >= "0.4.0" {
				n.must(n.runtime.CheckNetworkList(t.Context(), n.list, a.rt))
			}
			for range 2 {
				n.must(n.del(a))
			}
			n.must(n.del(b))
			n.wantNothing()
			if got := n.leases(dir); len(got) != 0 {
				t.Errorf("not given back: %v", got)
			}
		})
	}
}

// What the agent does not take is given back: addresses outside of the Network, those of other
// pods, and those of an ADD that fails later.
func TestHostLocalAddressesThatAreNotTaken(t *testing.T) {
	n := newDelegatingNode(t)
	use := func(dir, start string) {
		n.conf("0.4.0", fmt.Sprintf(`"type":"odlcoe","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.244.0.0/16","gateway":"10.244.1.1","rangeStart":%q}]]}`, dir, start))
	}
	other := n.newPod("other")
	n.must(n.add(other)) // of the agent
	for _, tt := range []struct {
		name, start string
		prepare     func(*pod)
		code        uint
		want        string
	}{
		{"outside", "10.244.2.7", func(*pod) {}, wire.CodeRefused, "address 10.244.2.7 is outside of its subnets"},
		{"taken", other.ip(0), func(*pod) {}, wire.CodeRefused, "address 10.244.1.2 on Network default belongs to default/other/eth0"},
		{"a later step fails", "10.244.1.60", func(p *pod) { p.Command(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x") },
			wire.CodeInvalidEnvironment, `interface "eth0" exists already`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			use(dir, tt.start)
			p := n.newPod("bad")
			tt.prepare(p)
			wantCode(t, n.add(p), tt.code, tt.want)
			if got := n.leases(dir); len(got) != 0 {
				t.Errorf("not given back: %v", got)
			}
			if got := n.store.List(); len(got) != 1 {
				t.Errorf("attachments %v", got)
			}
			n.must(n.del(p))
		})
	}
	use(t.TempDir(), "10.244.1.2")
	n.must(n.del(other))
	n.wantNothing()
}

// The plugin is killed after host-local has given an address: DEL gives it back.
func TestHostLocalAfterAKilledPlugin(t *testing.T) {
	n := newDelegatingNode(t)
	dir := t.TempDir()
	n.conf("1.0.0", fmt.Sprintf(`"type":"ovs-odl","ipam":{"type":"host-local","dataDir":%q,"subnet":"10.244.1.0/24"}`, dir))
	p := n.newPod("pod-a")
	// As it is left then: the agent was not asked again.
	ipam := libcni.NewCNIConfigWithCacheDir([]string{referencePlugins}, t.TempDir(), nil)
	conf, err := libcni.NetworkPluginConfFromBytes(
		[]byte(strings.Replace(string(n.list.Plugins[0].Bytes), `"type":"ovs-odl"`, `"type":"host-local"`, 1)))
	n.must(err)
	_, err = ipam.AddNetwork(t.Context(), conf, p.rt)
	n.must(err)
	if got := n.leases(dir); len(got) != 1 {
		t.Fatalf("given: %v", got)
	}
	n.must(n.del(p))
	if got := n.leases(dir); len(got) != 0 {
		t.Errorf("not given back: %v", got)
	}
	n.wantNothing()
}

// The plugin static is another one that can be installed.
func TestStaticIPAM(t *testing.T) {
	n := newDelegatingNode(t)
	n.conf("1.0.0", `"type":"ovs-odl","ipam":{"type":"static","addresses":[{"address":"10.244.1.77/24","gateway":"10.244.1.1"},{"address":"fd00:10:244:1::77/64"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["10.96.0.10"]}}`)
	a := n.newPod("pod-a")
	n.must(n.add(a))
	if got := summaryOf(a.result); got != "eth0 10.244.1.77/24, eth0 fd00:10:244:1::77/64" {
		t.Errorf("addresses %s", got)
	}
	if at, _ := n.store.Get(attachment.Key{ContainerID: "pod-a", IfName: "eth0"}); at.DNS == nil || !slices.Equal(at.DNS.Nameservers, []string{"10.96.0.10"}) {
		t.Errorf("DNS %v", at.DNS)
	}
	b := n.newPod("pod-b")
	wantCode(t, n.add(b), wire.CodeRefused, "address 10.244.1.77 on Network default belongs to default/pod-a/eth0")
	n.must(n.runtime.CheckNetworkList(t.Context(), n.list, a.rt))
	n.must(n.del(b))
	n.must(n.del(a))
	n.wantNothing()
}
