// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/internal/reserved"
)

// packet is one that a Port of the world sends to its router, or to a neighbor's MAC.
type packet struct {
	name   string
	port   string // that sends it
	on     string // its logical switch
	from   string
	to     string
	mac    string // of the destination; empty: the switch's router
	want   string // the logical port that it leaves by; empty: none
	spoofs bool   // with the MAC of another port
}

func (p packet) match(t *testing.T, o *ovntest.OVN) string {
	mac := p.mac
	if mac == "" {
		mac = strings.TrimSpace(o.Nbctl("get", "logical_router_port", strings.Replace(p.on, "net-", "lrp-", 1), "mac"))
	}
	src := reserved.PodMAC(netip.MustParseAddr(p.from))
	for _, q := range world().Ports {
		if q.ObjectKey() == p.port && !p.spoofs {
			src = q.MAC
		}
	}
	family, icmp := "ip4", "icmp4"
	if strings.Contains(p.to, ":") {
		family, icmp = "ip6", "icmp6 && icmp6.type == 128"
	}
	return fmt.Sprintf(`inport == "%s" && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64 && %s`,
		p.port, src, strings.Trim(mac, `"`), family, p.from, family, p.to, icmp)
}

// What ovn-northd makes of the rows is what Networks and Routers mean.
func TestMeaning(t *testing.T) {
	o := ovntest.Start(t)
	o.Northd()
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), nil)
	c.synced()
	o.Nbctl("--wait=sb", "sync")
	for _, p := range []packet{
		{name: "a pod on another node", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.244.2.2", want: "shop/db"},
		{name: "the same by IPv6", port: "shop/web", on: "net-default@n1", from: "fd00:244:1::2", to: "fd00:244:2::2", want: "shop/db"},
		{name: "the outside", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "203.0.113.9", want: "mgmt-n1"},
		{name: "the outside by IPv6", port: "shop/db", on: "net-default@n2", from: "fd00:244:2::2", to: "2001:db8::9", want: "mgmt-n2"},
		{name: "no such pod", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.244.9.9", want: "mgmt-n1"},
		{name: "a Service without endpoints", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.96.0.9"},
		{name: "a pod from its node", port: "mgmt-n1", on: "net-default@n1", from: "10.244.1.254", to: "10.244.2.2", want: "shop/db"},
		{name: "a pod's source that is another's", port: "shop/web", on: "net-default@n1", from: "10.244.1.3", to: "10.244.2.2"},
		{name: "a MAC that is another's", port: "shop/web", on: "net-default@n1", from: "10.244.1.3", to: "10.244.2.2", spoofs: true},
		{name: "a neighbor", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.10.0.3", mac: "0a:ce:0a:0a:00:03", want: "red/c"},
		{name: "another Network of the Router", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.11.0.2", want: "red/b"},
		{name: "another tenant's neighbor", port: "blue/a", on: "net-blue", from: "10.10.0.2", to: "10.10.0.3", mac: "0a:ce:0a:0a:00:03"},
		{name: "another tenant's Network", port: "blue/a", on: "net-blue", from: "10.10.0.2", to: "10.11.0.2"},
		{name: "a tenant to the cluster", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.244.1.2"},
		{name: "the cluster to a tenant", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.11.0.2", want: "mgmt-n1"},
		{name: "a Router that is imported", port: "audit/a", on: "net-audit", from: "10.20.0.2", to: "10.11.0.2", want: "red/b"},
		{name: "a Router that is not", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.20.0.2"},
		{name: "from a shared Router", port: "lab/a", on: "net-lab", from: "10.30.0.2", to: "10.244.1.2", want: "shop/web"},
		{name: "to a shared Router", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.30.0.2", want: "lab/a"},
		{name: "to a shared Router by IPv6", port: "shop/web", on: "net-default@n1", from: "fd00:244:1::2", to: "fd00:30::2", want: "lab/a"},
		{name: "to the wire", port: "shop/web.net1", on: "net-office", from: "192.168.70.9", to: "192.168.70.200",
			mac: "0a:00:00:00:00:99", want: "wire-office"},
	} {
		trace := o.Trace(p.on, p.match(t, o))
		out := outputs(trace)
		if p.want == "" && len(out) > 0 || p.want != "" && (len(out) != 1 || out[0] != p.want) {
			t.Errorf("%s: leaves by %q, want %q\n%s\n%s", p.name, out, p.want, p.match(t, o), trace)
		}
	}
	dhcp := o.Trace("net-red", fmt.Sprintf(`inport == "red/a" && eth.src == %s && eth.dst == ff:ff:ff:ff:ff:ff && `+
		`ip4.src == 0.0.0.0 && ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67 && ip.ttl == 64`,
		reserved.PodMAC(netip.MustParseAddr("10.10.0.2"))))
	for _, want := range []string{
		"put_dhcp_opts(offerip = 10.10.0.2", `bootfile_name = "pxelinux.0"`, "dns_server = {192.0.2.53}",
		"classless_static_route = {192.168.50.0/24, 10.10.0.5, 0.0.0.0/0, 10.10.0.1}", `domain_name = "red.example"`,
		`domain_search_list = "red.example,example"`, "lease_time = 3600", "mtu = 1400", "next_server = 192.0.2.69",
		"ntp_server = {192.0.2.123}", "router = 10.10.0.1", "server_id = 10.10.0.1", `tftp_server = "192.0.2.69"`,
		`hostname = "a"`,
	} {
		if !strings.Contains(dhcp, want) {
			t.Errorf("DHCP lacks %s:\n%s", want, dhcp)
		}
	}
	dhcp = o.Trace("net-red", fmt.Sprintf(`inport == "red/a" && eth.src == %[1]s && eth.dst == 33:33:00:01:00:02 && `+
		`ip6.src == %[2]s && ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547 && ip.ttl == 64`,
		reserved.PodMAC(netip.MustParseAddr("10.10.0.2")), reserved.PodMAC(netip.MustParseAddr("10.10.0.2")).LinkLocal()))
	for _, want := range []string{"put_dhcpv6_opts(ia_addr = fd00:10::2", "dns_server = {2001:db8::53}", `domain_search = "red.example,example"`} {
		if !strings.Contains(dhcp, want) {
			t.Errorf("DHCPv6 lacks %s:\n%s", want, dhcp)
		}
	}

	// ovn-trace takes every port as being on the chassis: by which node it leaves, it cannot say.
	p := packet{port: "lab/a", on: "net-lab", from: "10.30.0.2", to: "203.0.113.9"}
	if out := outputs(o.Trace(p.on, p.match(t, o))); len(out) != 1 || !strings.HasPrefix(out[0], "mgmt-") {
		t.Errorf("from a shared Router to the outside: leaves by %q", out)
	}
}

// A Router's gateway translates what leaves to its address, and a floating IP what is for it and
// what its Port sends. ovn-trace takes chassis as they are bound: there is none here but by hand.
func TestGatewayMeaning(t *testing.T) {
	o := ovntest.Start(t)
	o.Northd()
	w := world()
	address := netip.MustParseAddr
	w.Networks[len(w.Networks)-1].External = true // office
	w.EgressAddresses = []intent.EgressAddress{{
		Network: "office", Address: address("192.168.70.50"), Router: "red", Nodes: []string{"n1", "n2"},
	}}
	w.FloatingIPs = []intent.FloatingIP{{Name: "red/a", Network: "office", Address: address("192.168.70.60"), Port: "red/a"}}
	for i, p := range w.Ports {
		if p.ObjectKey() == "red/c" {
			w.Ports[i].NodeAddresses = []netip.Addr{address("10.244.2.20")}
		}
	}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	o.Nbctl("--wait=sb", "sync")
	nat := o.Nbctl("lr-nat-list", "router-red")
	for _, want := range []string{"dnat_and_snat", "192.168.70.60", "0a:ce:c0:a8:46:3c", "192.168.70.50"} {
		if !strings.Contains(nat, want) {
			t.Errorf("translation lacks %s:\n%s", want, nat)
		}
	}
	chassis := o.Nbctl("lrp-get-gateway-chassis", "gw-office@red")
	if !strings.Contains(chassis, "gw-office@red@n1") || strings.Index(chassis, "n2") < strings.Index(chassis, "n1") {
		t.Errorf("gateway chassis: %s", chassis)
	}
	o.Chassis("n1", "red/a", "cr-gw-office@red", "cr-node-n2@red")
	o.Neighbor("gw-office@red", "192.168.70.1", "0a:00:00:00:00:99")
	for _, p := range []struct {
		packet
		translation string
	}{
		{packet{port: "red/a", on: "net-red", from: "10.10.0.2", to: "203.0.113.9", want: "wire-office"}, "ct_snat_in_czone(192.168.70.60)|ct_snat(192.168.70.60)"},
		{packet{port: "red/c", on: "net-red", from: "10.10.0.3", to: "203.0.113.9", want: "wire-office"}, "ct_snat_in_czone(192.168.70.50)|ct_snat(192.168.70.50)"},
		{packet{port: "red/c", on: "net-red", from: "10.10.0.3", to: "10.96.0.9", want: "mgmt-n2"}, "ct_snat_in_czone(10.244.2.20)|ct_snat(10.244.2.20)"},
	} {
		trace := o.Trace(p.on, p.match(t, o))
		if out := outputs(trace); len(out) != 1 || out[0] != p.want {
			t.Errorf("what %s sends to %s leaves by %q, not %s:\n%s", p.port, p.to, out, p.want, trace)
		}
		one, other, _ := strings.Cut(p.translation, "|")
		if !strings.Contains(trace, one) && !strings.Contains(trace, other) {
			t.Errorf("%s is not translated by %s:\n%s", p.port, p.translation, trace)
		}
	}
}

// Without a gateway of its Router a FloatingIP translates at the node of its Port, both ways, and
// nothing else leaves the Router.
func TestGatewayMeaningOfFloatingIPsAlone(t *testing.T) {
	o := ovntest.Start(t)
	o.Northd()
	w := world()
	address := netip.MustParseAddr
	w.Networks[len(w.Networks)-1].External = true // office
	w.FloatingIPs = []intent.FloatingIP{{Name: "red/a", Network: "office", Address: address("192.168.70.60"), Port: "red/a"}}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	o.Nbctl("--wait=sb", "sync")
	o.Chassis("n1", "red/a") // the gateway's port is on no chassis
	o.Neighbor("gw-office@red", "192.168.70.1", "0a:00:00:00:00:99")
	o.Neighbor("gw-office@red", "192.168.70.200", "0a:00:00:00:00:98")
	for _, p := range []struct {
		packet
		translated string
	}{
		{packet{name: "what has one", port: "red/a", on: "net-red", from: "10.10.0.2", to: "203.0.113.9", want: "wire-office"}, "ct_snat(192.168.70.60)"},
		{packet{name: "to the segment", port: "red/a", on: "net-red", from: "10.10.0.2", to: "192.168.70.200", want: "wire-office"}, "ct_snat(192.168.70.60)"},
		{packet{name: "what has none", port: "red/c", on: "net-red", from: "10.10.0.3", to: "203.0.113.9"}, ""},
		{packet{name: "what has none, to the segment", port: "red/c", on: "net-red", from: "10.10.0.3", to: "192.168.70.200"}, ""},
		{packet{name: "within the Router", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.11.0.2", want: "red/b"}, ""},
		{packet{name: "from outside", port: "wire-office", on: "net-office", from: "192.168.70.200", to: "192.168.70.60",
			mac: reserved.PodMAC(address("192.168.70.60")).String(), want: "red/a"}, "ct_dnat(10.10.0.2)"},
	} {
		trace := o.Trace(p.on, p.match(t, o))
		out := outputs(trace)
		if p.want == "" && len(out) > 0 || p.want != "" && (len(out) != 1 || out[0] != p.want) {
			t.Errorf("%s: leaves by %q, want %q\n%s\n%s", p.name, out, p.want, p.match(t, o), trace)
		}
		inZone := strings.Replace(p.translated, "(", "_in_czone(", 1)
		if !strings.Contains(trace, p.translated) && !strings.Contains(trace, inZone) || p.translated == "" && strings.Contains(trace, "192.168.70.60") {
			t.Errorf("%s: is to be translated by %q:\n%s", p.name, p.translated, trace)
		}
	}
	arp := o.Trace("net-office", `inport == "wire-office" && eth.src == 0a:00:00:00:00:98 && eth.dst == ff:ff:ff:ff:ff:ff && `+
		`arp.op == 1 && arp.sha == 0a:00:00:00:00:98 && arp.spa == 192.168.70.200 && arp.tpa == 192.168.70.60 && arp.tha == 00:00:00:00:00:00`)
	if mac := reserved.PodMAC(address("192.168.70.60")).String(); !strings.Contains(arp, "arp.sha = "+mac) {
		t.Errorf("nothing answers for the address with %s:\n%s", mac, arp)
	}
}

// What comes from the wire for a FloatingIP of a Service reaches a node, but not with an address of
// the cluster or of a FloatingIP as its source.
func TestFrontMeaning(t *testing.T) {
	o := ovntest.Start(t)
	o.Northd()
	w := world()
	address := netip.MustParseAddr
	w.Networks[len(w.Networks)-1].External = true // office
	for i := range w.Nodes {
		w.Nodes[i].PhysicalNetworks = []string{"dc"}
	}
	w.Services = []intent.Service{{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{{
		Protocol: intent.TCP, Port: 80, ClusterIP: address("10.96.0.10"),
		Endpoints: []intent.ServiceEndpoint{{Address: address("10.244.1.2"), Port: 8080, Topology: intent.NewTopology("n1", nil, nil)}},
	}}}}
	w.FloatingIPs = []intent.FloatingIP{{Name: "shop/web", Network: "office", Address: address("192.168.70.61"), Service: "shop/web"}}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	o.Nbctl("--wait=sb", "sync")
	o.Chassis("n1", "mgmt-n1", "cr-"+names.Cluster("").FrontPort("shop/web"))
	for source, fits := range map[string]bool{
		"192.168.70.200": true, "203.0.113.9": true, "10.244.2.2": false, "10.96.0.10": false, "192.168.70.61": false,
	} {
		trace := o.Trace("net-office", fmt.Sprintf(`inport == "wire-office" && eth.src == 0a:00:00:00:00:98 && eth.dst == %s && `+
			`ip4.src == %s && ip4.dst == 192.168.70.61 && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80`,
			reserved.PodMAC(address("192.168.70.61")), source))
		if out := outputs(trace); len(out) > 1 || fits != (len(out) == 1 && strings.HasPrefix(out[0], "mgmt-")) {
			t.Errorf("what %s sends from the wire leaves by %q, and is to reach a node: %v\n%s", source, out, fits, trace)
		}
	}
}

// A private Router's Ports and their nodes reach each other by node addresses, and pods of the
// cluster do not.
func TestNodeAddressMeaning(t *testing.T) {
	o := ovntest.Start(t)
	o.Northd()
	w := world()
	for i, p := range w.Ports {
		switch p.ObjectKey() {
		case "red/a":
			w.Ports[i].NodeAddresses = []netip.Addr{netip.MustParseAddr("10.244.1.20"), netip.MustParseAddr("fd00:244:1::20")}
		case "red/c":
			w.Ports[i].NodeAddresses = []netip.Addr{netip.MustParseAddr("10.244.2.20")}
		}
	}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	o.Nbctl("--wait=sb", "sync")
	o.Chassis("n1", "red/a", "cr-node-n1@red", "mgmt-n1", "shop/web")
	gate := strings.Trim(strings.TrimSpace(o.Nbctl("get", "logical_router_port", "node-n1@red", "mac")), `"`)
	for _, p := range []struct {
		packet
		translated string
	}{
		{packet{name: "from the node", port: "mgmt-n1", on: "net-default@n1", from: "10.244.1.254", to: "10.244.1.20", mac: gate,
			want: "red/a"}, "ct_dnat(10.10.0.2)"},
		{packet{name: "from the node by IPv6", port: "mgmt-n1", on: "net-default@n1", from: "fd00:244:1:0:ffff:ffff:ffff:ffff",
			to: "fd00:244:1::20", mac: gate, want: "red/a"}, "ct_dnat(fd00:10::2)"},
		{packet{name: "from another node", port: "mgmt-n2", on: "net-default@n2", from: "10.244.2.254", to: "10.244.1.20",
			want: "mgmt-n1"}, ""},
		{packet{name: "from another node, at the Port's", port: "mgmt-n1", on: "net-default@n1", from: "10.244.2.254",
			to: "10.244.1.20", mac: gate, want: "red/a"}, "ct_dnat(10.10.0.2)"},
		{packet{name: "from a pod", port: "shop/web", on: "net-default@n1", from: "10.244.1.2", to: "10.244.1.20", mac: gate}, ""},
		{packet{name: "to a node address that no Port has", port: "mgmt-n1", on: "net-default@n1", from: "10.244.1.254",
			to: "10.244.1.21", mac: gate}, ""},
		{packet{name: "to the outside", port: "red/a", on: "net-red", from: "10.10.0.2", to: "203.0.113.9", want: "mgmt-n1"},
			"ct_snat(10.244.1.20)"},
		{packet{name: "to the outside without a node address", port: "red/b", on: "net-red2", from: "10.11.0.2", to: "203.0.113.9"}, ""},
		{packet{name: "to a node's address in the cluster without one", port: "red/b", on: "net-red2", from: "10.11.0.2", to: "10.244.1.9"}, ""},
		{packet{name: "to a pod", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.244.2.2"}, ""},
		{packet{name: "within the Router", port: "red/a", on: "net-red", from: "10.10.0.2", to: "10.11.0.2", want: "red/b"}, ""},
	} {
		trace := o.Trace(p.on, p.match(t, o))
		out := outputs(trace)
		if p.want == "" && len(out) > 0 || p.want != "" && (len(out) != 1 || out[0] != p.want) {
			t.Errorf("%s: leaves by %q, want %q\n%s\n%s", p.name, out, p.want, p.match(t, o), trace)
		}
		inZone := strings.Replace(p.translated, "(", "_in_czone(", 1)
		if !strings.Contains(trace, p.translated) && !strings.Contains(trace, inZone) {
			t.Errorf("%s: is to be translated by %q:\n%s", p.name, p.translated, trace)
		}
	}
	asks := reserved.PodMAC(netip.MustParseAddr("10.244.1.254")).String()
	arp := o.Trace("net-default@n1", fmt.Sprintf(`inport == "mgmt-n1" && eth.src == %[1]s && eth.dst == ff:ff:ff:ff:ff:ff && `+
		`arp.op == 1 && arp.sha == %[1]s && arp.spa == 10.244.1.254 && arp.tpa == 10.244.1.20 && arp.tha == 00:00:00:00:00:00`, asks))
	if !slices.Contains(outputs(arp), "mgmt-n1") {
		t.Errorf("nothing answers the node for the node address:\n%s", arp)
	}
}

// outputs are the logical ports that a packet leaves by.
func outputs(trace string) (ports []string) {
	for _, line := range strings.Split(trace, "\n") {
		if _, after, ok := strings.Cut(line, `/* output to "`); ok {
			name, kind, _ := strings.Cut(after, `"`)
			if !strings.Contains(kind, `type "patch"`) {
				ports = append(ports, name)
			}
		}
	}
	return ports
}
