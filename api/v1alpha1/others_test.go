// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"
)

// create is an object to be refused; its name is o unless given.
type create struct{ test, name, spec, want string }

// update is a change; want is empty for one that is accepted.
type update struct{ test, before, after, want string }

func (s server) run(t *testing.T, bad []create, good []string, changes []update) {
	t.Helper()
	for _, tc := range bad {
		t.Run("refused/"+tc.test, func(t *testing.T) {
			if tc.name == "" {
				tc.name = "o"
			}
			refused(t, s.create(t, tc.name, tc.spec), tc.want)
		})
	}
	for _, spec := range good {
		t.Run("accepted/"+spec, func(t *testing.T) {
			if got := s.create(t, "o", spec); got != "" {
				t.Error(got)
			}
			if got := s.update(t, "o", spec, spec); got != "" {
				t.Errorf("unchanged: %s", got)
			}
		})
	}
	for _, tc := range changes {
		t.Run("changed/"+tc.test, func(t *testing.T) {
			got := s.update(t, "o", tc.before, tc.after)
			if tc.want != "" {
				refused(t, got, tc.want)
			} else if got != "" {
				t.Error(got)
			}
		})
	}
}

// centralized is a gateway with addresses.
func centralized(addresses string) string {
	return "gateway: {network: office, snat: Centralized, addresses: [" + addresses + "]}"
}

func TestRouters(t *testing.T) {
	routers := load(t, "routers")
	const form = "must be AS:number or IPv4:number (RFC 4364)"
	target := func(value string) string { return "importRouteTargets: [" + value + "]" }
	routers.run(t, []create{
		{"long name", strings.Repeat("r", 64), "", "metadata.name must not be longer than 63 characters"},
		{"target without colon", "", target(`"64512"`), `spec.importRouteTargets[0]: Invalid value: "string": ` + form},
		{"target with a letter", "", target(`"AS64512:1"`), form},
		{"target of three parts", "", target(`"1:2:3"`), form},
		{"target with a leading zero", "", target(`"064512:1"`), form},
		{"AS of more than four bytes", "", target(`"4294967296:1"`), form},
		{"number of more than four bytes", "", target(`"64512:4294967296"`), form},
		{"eight bytes", "", target(`"65536:65536"`), form + ", such as 64512:10 or 192.0.2.1:10: six bytes, so that an AS above 65535 and an address leave numbers up to 65535, not \"65536:65536\""},
		{"address with a large number", "", target(`"192.0.2.1:65536"`), form},
		{"address that is none", "", target(`"192.0.2.256:1"`), form},
		{"IPv6 address", "", target(`"fd00::1:1"`), form},
		{"empty target", "", target(`""`), form},
		{"target twice", "", target(`"64512:1", "64512:1"`), `spec.importRouteTargets[1]: Duplicate value: "64512:1"`},
		{"bad export", "", `exportRouteTargets: ["64512:1", x]`, `spec.exportRouteTargets[1]: Invalid value: "string": ` + form},
		{"65 targets", "", target(many(65, `"64512:%d"`)), "spec.importRouteTargets: Too many: 65: must have at most 64 items"},
		{"distinguisher", "", `routeDistinguisher: x`, `spec.routeDistinguisher: Invalid value: "string": ` + form},
		{"route with host bits", "", `routes: [{destination: 10.0.0.1/8, nextHop: 10.1.0.1}]`, `spec.routes[0].destination: Invalid value: "string": must be a prefix in canonical form`},
		{"route to a name", "", `routes: [{destination: all, nextHop: 10.1.0.1}]`, `spec.routes[0].destination: Invalid value: "string": must be an IPv4 or IPv6 prefix`},
		{"route by the other family", "", `routes: [{destination: 10.0.0.0/8, nextHop: "fd00::1"}]`, `spec.routes[0].nextHop: Invalid value: "object": destination and nextHop must be of one family`},
		{"route by a prefix", "", `routes: [{destination: 10.0.0.0/8, nextHop: 10.1.0.0/16}]`, `spec.routes[0].nextHop: Invalid value: "string": must be an IPv4 or IPv6 address`},
		{"route twice", "", `routes: [{destination: 10.0.0.0/8, nextHop: 10.1.0.1}, {destination: 10.0.0.0/8, nextHop: 10.1.0.2}]`, `spec.routes[1]: Duplicate value`},
		{"default that imports nothing", "default", `exportRouteTargets: ["64512:1"]`, "the Router default imports and exports 64512:1"},
		{"default that exports nothing", "default", `importRouteTargets: ["64512:1"]`, "the Router default imports and exports 64512:1"},
		{"gateway to nowhere", "", `gateway: {}`, `spec.gateway.network: Required value`},
		{"gateway to a Network without a name", "", `gateway: {network: ""}`, `spec.gateway.network in body should be at least 1 chars long`},
		{"gateway and a default route", "", `gateway: {network: office}, routes: [{destination: 10.0.0.0/8, nextHop: 10.1.0.1}, {destination: 0.0.0.0/0, nextHop: 10.1.0.1}]`,
			`spec.routes: Invalid value: "object": a Router with a gateway has no route for 0.0.0.0/0 or ::/0: the gateway is the way there`},
		{"gateway and a default route for IPv6", "", `gateway: {network: office}, routes: [{destination: "::/0", nextHop: "fd00::1"}]`, `a Router with a gateway has no route for`},
		{"default of nothing", "default", ``, "the Router default imports and exports 64512:1"},
		{"SNAT of no kind", "", `gateway: {network: office, snat: Central}`, `spec.gateway.snat: Unsupported value: "Central": supported values: "Distributed", "Centralized"`},
		{"addresses of each node", "", `gateway: {network: office, addresses: [192.0.2.40]}`, `spec.gateway.addresses: Invalid value: "object": addresses are for snat: Centralized: set that, or leave addresses out`},
		{"failback of each node", "", `gateway: {network: office, failback: true}`, `spec.gateway.failback: Invalid value: "object": failback is for snat: Centralized: set that, or leave failback out`},
		{"addresses without SNAT", "", `gateway: {network: office, snat: None, addresses: [192.0.2.40]}`, `addresses are for snat: Centralized`},
		{"SNAT of another family", "", `gateway: {network: office, snatFamilies: [IPv5]}`, `spec.gateway.snatFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`},
		{"SNAT of no family", "", `gateway: {network: office, snatFamilies: []}`, `spec.gateway.snatFamilies in body should have at least 1 items`},
		{"SNAT of a family twice", "", `gateway: {network: office, snatFamilies: [IPv4, IPv4]}`, `spec.gateway.snatFamilies[1]: Duplicate value: "IPv4"`},
		{"a family of a centralized gateway", "", `gateway: {network: office, snat: centralized, snatFamilies: [IPv4]}`, `spec.gateway.snatFamilies: Invalid value: "object": snatFamilies are for snat: Distributed: set that, or leave snatFamilies out`},
		{"an address twice", "", centralized(`192.0.2.40, 192.0.2.40`), `spec.gateway.addresses[1]: Duplicate value: "192.0.2.40"`},
		{"an address that is none", "", centralized(`office`), `spec.gateway.addresses[0]: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form`},
		{"an address in another form", "", centralized(`"2001:DB8::40"`), `must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "2001:DB8::40"`},
		{"an address with a length", "", centralized(`192.0.2.40/32`), `must be an IPv4 or IPv6 address in canonical form`},
		{"an address of a group", "", centralized(`192.0.2.40, 224.0.0.5`), `spec.gateway.addresses[1]: Invalid value: "string": must be a unicast address: not unspecified, loopback, link-local or multicast`},
		{"an address of a link", "", centralized(`"fe80::1"`), `must be a unicast address`},
		{"17 addresses", "", centralized(many(17, `192.0.2.%d`)), "spec.gateway.addresses: Too many: 17: must have at most 16 items"},
	}, []string{
		``,
		centralized(many(16, `192.0.2.%d`)),
		`gateway: {network: office, snat: centralized, failback: true, addresses: [192.0.2.40, "2001:db8::40"]}`,
		`gateway: {network: office, snat: Centralized}`,
		`gateway: {network: office, snat: None}`,
		`gateway: {network: office, snat: none}`,
		`gateway: {network: office, snatFamilies: [IPv4]}`,
		`gateway: {network: office, snat: distributed, snatFamilies: [ipv4, IPv6]}`,
		`gateway: {network: office, snat: Distributed, failback: false, addresses: []}`,
		`routeDistinguisher: "64512:7"`,
		`importRouteTargets: ["0:0", "65535:4294967295", "4294967295:65535", "192.0.2.1:65535", "64512:1"], exportRouteTargets: ["64512:1"]`,
		`routes: [{destination: 0.0.0.0/0, nextHop: 10.1.0.1}, {destination: "::/0", nextHop: "fd00::1"}]`,
		`importRouteTargets: [` + many(64, `"64512:%d"`) + `], routes: [` + many(256, `{destination: 10.0.%d.0/24, nextHop: 10.1.0.1}`) + `]`,
		`gateway: {network: office, nodes: {matchLabels: {edge: "true"}}}, routes: [` + many(256, `{destination: 10.0.%d.0/24, nextHop: 10.1.0.1}`) + `]`,
	}, []update{
		{"targets, routes and distinguisher", ``, `routeDistinguisher: "1:1", importRouteTargets: ["1:1"], exportRouteTargets: ["1:2"], routes: [{destination: 10.0.0.0/8, nextHop: 10.1.0.1}]`, ""},
		{"gateway given and taken away", `gateway: {network: office}`, `routes: [{destination: 0.0.0.0/0, nextHop: 10.1.0.1}]`, ""},
		{"gateway beside a default route", `routes: [{destination: 0.0.0.0/0, nextHop: 10.1.0.1}]`, `gateway: {network: office}, routes: [{destination: 0.0.0.0/0, nextHop: 10.1.0.1}]`, `a Router with a gateway has no route for`},
		{"to bad targets", ``, `importRouteTargets: [x]`, form},
		{"SNAT and addresses", `gateway: {network: office}`, centralized(`192.0.2.40`), ""},
		{"other addresses", centralized(`192.0.2.40`), centralized(`192.0.2.41, "2001:db8::40"`), ""},
		{"SNAT without taking the addresses away", centralized(`192.0.2.40`), `gateway: {network: office, snat: Distributed, addresses: [192.0.2.40]}`, `addresses are for snat: Centralized`},
	})
	if got := routers.create(t, "default", `importRouteTargets: ["64512:1"], exportRouteTargets: ["64512:1", "64512:2"]`); got != "" {
		t.Errorf("default: %s", got)
	}
}

func TestPorts(t *testing.T) {
	ports := load(t, "ports")
	const one = `network: red`
	ports.run(t, []create{
		{"no network", "", ``, `spec.network: Required value`},
		{"empty network", "", `network: ""`, `spec.network in body should be at least 1 chars long`},
		{"MAC of five bytes", "", `network: red, mac: "02:00:00:00:05"`, `spec.mac: Invalid value: "string": must be a MAC address such as 02:00:00:00:00:05, not "02:00:00:00:05"`},
		{"MAC with dashes", "", `network: red, mac: 02-00-00-00-00-05`, `must be a MAC address such as`},
		{"MAC of a group", "", `network: red, mac: "01:00:5e:00:00:05"`, `must be the MAC address of one interface`},
		{"MAC of all", "", `network: red, mac: "ff:ff:ff:ff:ff:ff"`, `must be the MAC address of one interface`},
		{"MAC of zeros", "", `network: red, mac: "00:00:00:00:00:00"`, `must be the MAC address of one interface`},
		{"empty MAC", "", `network: red, mac: ""`, `must be a MAC address`},
		{"address with length", "", `network: red, addresses: [10.1.0.5/16]`, `spec.addresses[0]: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "10.1.0.5/16"`},
		{"address of three bytes", "", `network: red, addresses: [10.1.5]`, `must be an IPv4 or IPv6 address`},
		{"address with zeros", "", `network: red, addresses: ["fd00:0::5"]`, `must be an IPv4 or IPv6 address in canonical form`},
		{"address with a zone", "", `network: red, addresses: ["fe80::1%eth0"]`, `must be an IPv4 or IPv6 address in canonical form`},
		{"link-local address", "", `network: red, addresses: ["fe80::1"]`, `spec.addresses[0]: Invalid value: "string": must be a unicast address: not unspecified, loopback, link-local or multicast`},
		{"multicast address", "", `network: red, addresses: [224.0.0.5]`, `must be a unicast address`},
		{"no address at all", "", `network: red, addresses: [0.0.0.0]`, `must be a unicast address`},
		{"address twice", "", `network: red, addresses: [10.1.0.5, 10.1.0.5]`, `spec.addresses[1]: Duplicate value: "10.1.0.5"`},
		{"17 addresses", "", `network: red, addresses: [` + many(17, "10.1.0.%d") + `]`, `spec.addresses: Too many: 17: must have at most 16 items`},
		{"pod without name", "", `network: red, pod: {uid: u, interface: eth0}`, `spec.pod.name: Required value`},
		{"SecurityGroup twice", "", `network: red, securityGroups: [a, a]`, `spec.securityGroups[1]: Duplicate value: "a"`},
		{"SecurityGroup of another namespace", "", `network: red, securityGroups: [b/a]`, `spec.securityGroups[0]: Invalid value: "string": must be the name of a SecurityGroup, not "b/a"`},
		{"33 SecurityGroups", "", `network: red, securityGroups: [` + many(33, "g%d") + `]`, `spec.securityGroups: Too many: 33: must have at most 32 items`},
		{"SecurityGroups of a pod", "", `network: red, securityGroups: [a], pod: {name: p, uid: u, interface: net1}`, `spec.securityGroups: Invalid value: "object": the Ports of a pod are of the SecurityGroups that its annotation coelan.io/security-groups names`},
		{"a trusted pod", "", `network: red, trusted: true, pod: {name: p, uid: u, interface: net1}`, `spec.trusted: Invalid value: "object": the Ports of pods are not trusted`},
		{"trusted in words", "", `network: red, trusted: "yes"`, `spec.trusted`},
		{"dynamic without a node", "", `network: red, dynamic: true, mac: "02:00:00:00:00:05"`, `spec.dynamic: Invalid value: "object": a dynamic Port has a node and a mac, no addresses and no pod`},
		{"dynamic without a MAC", "", `network: red, dynamic: true, node: a`, `a dynamic Port has a node and a mac`},
		{"dynamic with an address", "", `network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05", addresses: [10.1.0.5]`, `no addresses and no pod`},
		{"dynamic of a pod", "", `network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05", pod: {name: p, uid: u, interface: net1}`, `no addresses and no pod`},
		{"long interface", "", `network: red, pod: {name: p, uid: u, interface: abcdefghijklmnop}`, `spec.pod.interface: Too long: may not be more than 15 bytes`},
	}, []string{
		one,
		`network: red, mac: "02:00:00:aA:00:05", addresses: [10.1.0.5, 10.1.0.6, "fd00:10::5"], node: a`,
		`network: red, addresses: []`,
		`network: red, trusted: true`,
		`network: red, trusted: false, pod: {name: p, uid: u, interface: net1}`,
		`network: red, securityGroups: [a, b.c-d]`,
		`network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05", securityGroups: [a]`,
		`network: red, dynamic: false`,
		`network: red, pod: {name: p, uid: u, interface: net1}`,
	}, []update{
		{"network", one, `network: blue`, `spec.network: Invalid value: "object": network cannot be changed`},
		{"MAC", `network: red, mac: "02:00:00:00:00:05"`, `network: red, mac: "02:00:00:00:00:06"`, `spec.mac: Invalid value: "object": mac cannot be changed`},
		{"MAC given later", one, `network: red, mac: "02:00:00:00:00:06"`, `mac cannot be changed`},
		{"address", `network: red, addresses: [10.1.0.5]`, `network: red, addresses: [10.1.0.6]`, `spec.addresses: Invalid value: "object": addresses cannot be changed`},
		{"address given later", one, `network: red, addresses: [10.1.0.6]`, `addresses cannot be changed`},
		{"address taken away", `network: red, addresses: [10.1.0.6]`, one, `addresses cannot be changed`},
		{"pod", `network: red, pod: {name: p, uid: u, interface: net1}`, `network: red, pod: {name: p, uid: v, interface: net1}`, `spec.pod: Invalid value: "object": pod cannot be changed`},
		{"pod given later", one, `network: red, pod: {name: p, uid: v, interface: net1}`, `pod cannot be changed`},

		{"dynamic given later", `network: red, node: a, mac: "02:00:00:00:00:05"`, `network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05"`, `spec.dynamic: Invalid value: "object": dynamic cannot be changed`},
		{"dynamic taken away", `network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05"`, `network: red, node: a, mac: "02:00:00:00:00:05"`, `dynamic cannot be changed`},
		{"node of a dynamic one", `network: red, dynamic: true, node: a, mac: "02:00:00:00:00:05"`, `network: red, dynamic: true, node: b, mac: "02:00:00:00:00:05"`, `spec.node: Invalid value: "object": the node of a dynamic Port cannot be changed`},

		{"node", `network: red, node: a`, `network: red, node: b`, ""},
		{"node given and taken away", one, `network: red, node: b`, ""},
		{"SecurityGroups", `network: red, securityGroups: [a]`, `network: red, securityGroups: [b, c]`, ""},
		{"SecurityGroups given and taken away", one, `network: red, securityGroups: [b]`, ""},
		{"trusted", one, `network: red, trusted: true`, ""},
		{"not trusted any more", `network: red, trusted: true`, one, ""},
		{"empty list left out", `network: red, addresses: []`, one, ""},
	})
}

func TestAddressBlocks(t *testing.T) {
	blocks := load(t, "addressblocks")
	const one = `network: red, cidr: 10.1.0.0/26, node: a`
	blocks.run(t, []create{
		{"no prefix", "", `network: red`, `spec.cidr: Required value`},
		{"no network", "", `cidr: 10.1.0.0/26`, `spec.network: Required value`},
		{"address", "", `network: red, cidr: 10.1.0.1`, `spec.cidr: Invalid value: "string": must be an IPv4 or IPv6 prefix`},
		{"host bits", "", `network: red, cidr: 10.1.0.1/26`, `with no bits set after its length, not "10.1.0.1/26"`},
		{"many addresses for a Port", "", one + `, port: ns/p`, `spec.cidr: Invalid value: "object": a block that is for a Port is a single address: /32, or /128 for IPv6`},
		{"two addresses for a Port, IPv6", "", `network: red, cidr: "fd00::/127", port: ns/p`, `is a single address`},
		{"many addresses for a FloatingIP", "", `network: red, cidr: 10.1.0.0/26, floatingIP: ns/f`, `spec.cidr: Invalid value: "object": a block that is for a FloatingIP is a single address: /32, or /128 for IPv6`},
		{"32 bits of IPv6 for a FloatingIP", "", `network: red, cidr: "fd00::/32", floatingIP: ns/f`, `is a single address`},
		{"FloatingIP of a node", "", `network: red, cidr: 10.1.0.5/32, node: a, floatingIP: ns/f`, `spec.floatingIP: Invalid value: "object": a block that is for a FloatingIP is the controller's, and for no Port`},
		{"FloatingIP and Port", "", `network: red, cidr: 10.1.0.5/32, port: ns/p, floatingIP: ns/f`, `and for no Port`},
		{"many addresses for a gateway", "", `network: red, cidr: 10.1.0.0/26, gateway: r/n`, `spec.cidr: Invalid value: "object": a block that is for a gateway is a single address: /32, or /128 for IPv6`},
		{"32 bits of IPv6 for a gateway", "", `network: red, cidr: "fd00::/32", gateway: r/n`, `is a single address`},
		{"gateway of a node's", "", `network: red, cidr: 10.1.0.5/32, node: a, gateway: r/n`, `spec.gateway: Invalid value: "object": a block that is for a gateway is the controller's, and for nothing else`},
		{"gateway and Port", "", `network: red, cidr: 10.1.0.5/32, port: ns/p, gateway: r/n`, `and for nothing else`},
		{"gateway and FloatingIP", "", `network: red, cidr: 10.1.0.5/32, floatingIP: ns/f, gateway: r/n`, `and for nothing else`},
		{"gateway and Egress", "", `network: red, cidr: 10.1.0.5/32, egress: e, gateway: r/*`, `and for nothing else`},
		{"many addresses for an Egress", "", `network: red, cidr: 10.1.0.0/26, egress: e`, `spec.cidr: Invalid value: "object": a block that is for an Egress is a single address: /32, or /128 for IPv6`},
		{"32 bits of IPv6 for an Egress", "", `network: red, cidr: "fd00::/32", egress: e`, `is a single address`},
		{"Egress of a node", "", `network: red, cidr: 10.1.0.5/32, node: a, egress: e`, `spec.egress: Invalid value: "object": a block that is for an Egress is the controller's, and for nothing else`},
		{"Egress and Port", "", `network: red, cidr: 10.1.0.5/32, port: ns/p, egress: e`, `and for nothing else`},
		{"Egress and FloatingIP", "", `network: red, cidr: 10.1.0.5/32, floatingIP: ns/f, egress: e`, `and for nothing else`},
		{"long name of an Egress", "", `network: red, cidr: 10.1.0.5/32, egress: ` + strings.Repeat("e", 64), `spec.egress: Too long: may not be more than 63 bytes`},
		{"long key of a gateway", "", `network: red, cidr: 10.1.0.5/32, gateway: ` + strings.Repeat("g", 318), `spec.gateway: Too long: may not be more than 317 bytes`},
		{"long key of a FloatingIP", "", `network: red, cidr: 10.1.0.5/32, floatingIP: ` + strings.Repeat("f", 318), `spec.floatingIP: Too long: may not be more than 317 bytes`},
		{"32 bits of IPv6 for a Port", "", `network: red, cidr: "fd00::/32", port: ns/p`, `is a single address`},
	}, []string{
		one,
		`network: red, cidr: "fd00:10::/122", node: a`,
		`network: red, cidr: 10.1.0.5/32, node: a, port: ns/p`,
		`network: red, cidr: "fd00:10::5/128", port: ns/p`,
		`network: red, cidr: 10.1.0.5/32, floatingIP: ns/f`,
		`network: red, cidr: "fd00:10::5/128", floatingIP: ns/f, grantor: b`,
		`network: red, cidr: 10.1.0.5/32, gateway: r/n`,
		`network: red, cidr: "fd00:10::5/128", gateway: "r/*"`,
		`network: red, cidr: 10.1.0.5/32, egress: e, grantor: b`,
	}, []update{
		{"FloatingIP", `network: red, cidr: 10.1.0.5/32, floatingIP: ns/f`, `network: red, cidr: 10.1.0.5/32, floatingIP: ns/g`, `an AddressBlock cannot be changed`},
		{"gateway", `network: red, cidr: 10.1.0.5/32, gateway: r/n`, `network: red, cidr: 10.1.0.5/32, gateway: r/m`, `an AddressBlock cannot be changed`},
		{"FloatingIP given later", `network: red, cidr: 10.1.0.5/32`, `network: red, cidr: 10.1.0.5/32, floatingIP: ns/g`, `an AddressBlock cannot be changed`},
		{"node", one, `network: red, cidr: 10.1.0.0/26, node: b`, `spec: Invalid value: "object": an AddressBlock cannot be changed`},
		{"node given later", `network: red, cidr: 10.1.0.0/26`, one, `an AddressBlock cannot be changed`},
		{"prefix", one, `network: red, cidr: 10.1.0.64/26, node: a`, `an AddressBlock cannot be changed`},
		{"network", one, `network: blue, cidr: 10.1.0.0/26, node: a`, `an AddressBlock cannot be changed`},
	})
}

func TestNodeNetworkConfigs(t *testing.T) {
	of := func(setting string) string { return "nodeName: worker1, " + setting }
	load(t, "nodenetworkconfigs").run(t, []create{
		{"long name", strings.Repeat("n", 64), of("mtu: 1400"), "metadata.name must not be longer than 63 characters"},
		{"for nothing", "", "mtu: 1400", `must be for one node or for those with some labels: set nodeName or nodeSelector; {} selects all`},
		{"for a node and for some", "", of("nodeSelector: {}"), "set nodeName or nodeSelector"},
		{"small MTU", "", of("mtu: 1279"), "spec.mtu: Invalid value: 1279: spec.mtu in body should be greater than or equal to 1280"},
		{"large MTU", "", of("mtu: 65536"), "spec.mtu in body should be less than or equal to 65535"},
		{"encapsulation of the ConfigMap", "", of("encapsulation: vxlan"), `supported values: "VXLAN", "Geneve", "NoEncap"`},
		{"bad physical network", "", of(`bridgeMappings: {"-x": br-ex}`), "a key is the name of a physical network"},
		{"no bridge", "", of(`bridgeMappings: {office: ""}`), "a value is the name of an OVS bridge: 1 to 15 characters"},
		{"long bridge", "", of(`bridgeMappings: {office: br-0123456789abc}`), "1 to 15 characters"},
		{"bad physical network of an uplink", "", of(`uplinks: {"a b": {interface: eth2}}`), "a key is the name of a physical network"},
		{"no card", "", of(`uplinks: {office: {}}`), "spec.uplinks.office.interface: Required value"},
		{"long card", "", of(`uplinks: {office: {interface: eth0123456789abc}}`), "may not be more than 15 bytes"},
		{"pod network", "", of(`subnets: [{network: default, cidrs: [10.244.0.0/16]}]`), "the Network default has the podCIDRs of the nodes"},
		{"no prefixes", "", of(`subnets: [{network: lan, cidrs: []}]`), "spec.subnets[0].cidrs in body should have at least 1 items"},
		{"address", "", of(`subnets: [{network: lan, cidrs: [10.1.0.1]}]`), "must be an IPv4 or IPv6 prefix"},
		{"a Network twice", "", of(`subnets: [{network: lan, cidrs: [10.1.0.0/24]}, {network: lan, cidrs: [10.2.0.0/24]}]`), "Duplicate value"},
	}, []string{
		"nodeName: worker1", "nodeSelector: {}, mtu: 1280", of("encapsulation: Geneve, bridgeMappings: {}, uplinks: {}"),
		`nodeSelector: {matchLabels: {rack: "1"}}, bridgeMappings: {physnet1: br-ex}, uplinks: {office: {interface: eth2, bridge: br-2, shared: true}}`,
		of(`subnets: [{network: lan, cidrs: [10.1.0.0/20, "fd00:1::/64"]}, {network: red, cidrs: [10.10.0.0/24]}]`),
	}, []update{
		{"another node", of("mtu: 1400"), "nodeName: worker2, mtu: 1400", ""},
		{"to a selector", of("mtu: 1400"), "nodeSelector: {}, mtu: 1400", ""},
	})
}

func TestEgresses(t *testing.T) {
	const one, form = `network: office, podSelector: {}`, "must be an IPv4 or IPv6 address in canonical form"
	load(t, "egresses").run(t, []create{
		{"long name", strings.Repeat("e", 64), one, "metadata.name must not be longer than 63 characters"},
		{"no network", "", `podSelector: {}`, `spec.network: Required value`},
		{"empty network", "", `network: "", podSelector: {}`, `spec.network in body should be at least 1 chars long`},
		{"no selector", "", `network: office`, `spec: Invalid value: "object": must select pods: set namespaceSelector, podSelector, or both; {} selects all`},
		{"addresses and a count", "", one + `, addresses: [192.0.2.40], count: 1`, `spec.count: Invalid value: "object": count is for addresses that the Network hands out: leave it out, or leave addresses out`},
		{"no address at all", "", one + `, count: 0`, `spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1`},
		{"17 of the Network", "", one + `, count: 17`, `spec.count: Invalid value: 17: spec.count in body should be less than or equal to 16`},
		{"17 addresses", "", one + `, addresses: [` + many(17, `192.0.2.%d`) + `]`, "spec.addresses: Too many: 17: must have at most 16 items"},
		{"an address twice", "", one + `, addresses: [192.0.2.40, 192.0.2.40]`, `spec.addresses[1]: Duplicate value: "192.0.2.40"`},
		{"an address that is none", "", one + `, addresses: [office]`, `spec.addresses[0]: Invalid value: "string": ` + form},
		{"an address with a length", "", one + `, addresses: [192.0.2.40/32]`, form},
		{"an address of a group", "", one + `, addresses: ["ff02::1"]`, `spec.addresses[0]: Invalid value: "string": must be a unicast address`},
		{"a destination with host bits", "", one + `, destinations: [203.0.113.0/24, 203.0.113.1/24]`, `spec.destinations[1]: Invalid value: "string": must be a prefix in canonical form`},
		{"a destination that is an address", "", one + `, destinations: [203.0.113.1]`, `spec.destinations[0]: Invalid value: "string": must be an IPv4 or IPv6 prefix`},
		{"a destination twice", "", one + `, destinations: [203.0.113.0/24, 203.0.113.0/24]`, `spec.destinations[1]: Duplicate value: "203.0.113.0/24"`},
		{"65 destinations", "", one + `, destinations: [` + many(65, `10.0.%d.0/24`) + `]`, "spec.destinations: Too many: 65: must have at most 64 items"},
		{"a policy route to nothing", "", one + `, policyRoute: {}`, "spec.policyRoute.nextHops: Required value"},
		{"no next hop", "", one + `, policyRoute: {nextHops: []}`, "spec.policyRoute.nextHops: Invalid value: 0: spec.policyRoute.nextHops in body should have at least 1 items"},
		{"17 next hops", "", one + `, policyRoute: {nextHops: [` + many(17, `192.0.2.%d`) + `]}`, "spec.policyRoute.nextHops: Too many: 17: must have at most 16 items"},
		{"a next hop twice", "", one + `, policyRoute: {nextHops: [192.0.2.1, 192.0.2.1]}`, `spec.policyRoute.nextHops[1]: Duplicate value: "192.0.2.1"`},
		{"a next hop that is a name", "", one + `, policyRoute: {nextHops: [fw1]}`, form},
		{"a next hop of a group", "", one + `, policyRoute: {nextHops: ["ff02::1"]}`, `must be a unicast address`},
		{"a check of no kind", "", one + `, policyRoute: {nextHops: [192.0.2.1], healthCheck: {}}`, "spec.policyRoute.healthCheck.type: Required value"},
		{"a check by HTTP", "", one + `, policyRoute: {nextHops: [192.0.2.1], healthCheck: {type: HTTP}}`, `spec.policyRoute.healthCheck.type: Unsupported value: "HTTP": supported values: "ICMP", "BFD"`},
		{"checks without a pause", "", one + `, policyRoute: {nextHops: [192.0.2.1], healthCheck: {type: ICMP, intervalMilliseconds: 49}}`, "should be greater than or equal to 50"},
		{"256 failures", "", one + `, policyRoute: {nextHops: [192.0.2.1], healthCheck: {type: BFD, failureThreshold: 256}}`, "should be less than or equal to 255"},
	}, []string{
		one,
		one + `, policyRoute: {nextHops: [192.0.2.1, "2001:db8::1"]}`,
		one + `, policyRoute: {nextHops: [192.0.2.1], healthCheck: {type: BFD, intervalMilliseconds: 50, failureThreshold: 255}}`,
		`network: office, namespaceSelector: {matchLabels: {team: bank}}, count: 16, failback: true`,
		one + `, namespaceSelector: {}, addresses: [` + many(16, `192.0.2.%d`) + `], nodes: {matchLabels: {edge: "true"}}`,
		one + `, addresses: [], count: 2, destinations: [0.0.0.0/0, "::/0"]`,
		one + `, destinations: [` + many(64, `10.0.%d.0/24`) + `]`,
	}, []update{
		{"all", one, `network: lab, namespaceSelector: {}, addresses: ["2001:db8::40"], destinations: ["2001:db8:1::/48"], failback: true`, ""},
		{"from a count to addresses", one + `, count: 2`, one + `, addresses: [192.0.2.40]`, ""},
		{"to addresses beside a count", one + `, count: 2`, one + `, count: 2, addresses: [192.0.2.40]`, `count is for addresses that the Network hands out`},
		{"without selectors", one, `network: office`, `must select pods`},
		{"other next hops", one + `, policyRoute: {nextHops: [192.0.2.1]}`, one + `, policyRoute: {nextHops: [192.0.2.2], healthCheck: {type: BFD}}`, ""},
		{"to next hops", one, one + `, policyRoute: {nextHops: [192.0.2.1]}`, `spec.policyRoute: Invalid value: "object": cannot be set or removed, since that would break all connections at once: make another Egress`},
		{"from next hops", one + `, policyRoute: {nextHops: [192.0.2.1]}`, one, `cannot be set or removed`},
	})
}

func TestLoadBalancerPools(t *testing.T) {
	pools := load(t, "loadbalancerpools")
	const (
		form    = "must be a prefix with no bits set after its length, such as 192.0.2.32/28, or a range such as 192.0.2.10-192.0.2.20, in canonical form"
		unicast = "must be unicast addresses: not unspecified, loopback, link-local, multicast or reserved"
		large   = "is too large: at most a /16, or a /64 for IPv6, and a range within one of these"
	)
	of := func(addresses string) string { return `addresses: ["` + addresses + `"]` }
	bad := []create{
		{"long name", strings.Repeat("p", 64), of("192.0.2.32/28"), "metadata.name must not be longer than 63 characters"},
		{"no addresses", "", ``, `spec.addresses: Required value`},
		{"empty list", "", `addresses: []`, `spec.addresses in body should have at least 1 items`},
		{"33 of them", "", `addresses: [` + many(33, "10.0.%d.0/24") + `]`, `spec.addresses: Too many: 33: must have at most 32 items`},
		{"the same twice", "", `addresses: [192.0.2.32/28, 192.0.2.32/28]`, `spec.addresses[1]: Duplicate value: "192.0.2.32/28"`},
		{"address", "", of("192.0.2.1"), `spec.addresses[0]: Invalid value: "string": ` + form + `, not "192.0.2.1"`},
		{"host bits", "", of("192.0.2.1/28"), form},
		{"host bits, IPv6", "", of("2001:db8::1/120"), form},
		{"zeros", "", of("2001:db8:0::/120"), form},
		{"mapped", "", of("::ffff:192.0.2.0/120"), form},
		{"empty text", "", of(""), form},
		{"name", "", of("pool"), form},
		{"list in one", "", of("192.0.2.0/28,192.0.2.32/28"), form},
		{"range of three", "", of("192.0.2.1-192.0.2.2-192.0.2.3"), form},
		{"range of one", "", of("192.0.2.1-"), form},
		{"range of prefixes", "", of("192.0.2.0/28-192.0.2.32/28"), form},
		{"range with blanks", "", of("192.0.2.1 - 192.0.2.9"), form},
		{"range with zeros", "", of("2001:db8::0-2001:db8::9"), form},
		{"range of two families", "", of("192.0.2.1-2001:db8::9"), "must be a range of one family"},
		{"range backwards", "", of("192.0.2.10-192.0.2.9"), "must not end before it starts"},
		{"large prefix", "", of("10.0.0.0/15"), large},
		{"large prefix, IPv6", "", of("2001:db8::/63"), large},
		{"large range", "", of("10.0.255.255-10.1.0.0"), large},
		{"large range, IPv6", "", of("2001:db8::1-2001:db8:0:1::1"), large},
		{"bad choice", "", of("192.0.2.32/28") + `, autoAssign: maybe`, `spec.autoAssign: Invalid value: "string"`},
		{"bad selector", "", of("192.0.2.32/28") + `, nodeSelector: {matchExpressions: [{operator: In}]}`, `spec.nodeSelector.matchExpressions[0].key: Required value`},
	}
	for _, addresses := range []string{
		"0.0.0.0/16", "0.1.2.3-0.1.2.4", "127.0.0.0/24", "127.0.0.2-127.0.0.3", "169.254.1.0/24", "126.255.255.250-127.0.0.1",
		"224.0.0.0/24", "239.1.1.1-239.1.1.2", "240.0.0.0/24", "255.255.255.0/24", "255.255.255.254-255.255.255.255",
		"::/64", "::1/128", "::1-::2", "fe80::/64", "fe80::5-fe80::6", "ff02::/64",
	} {
		bad = append(bad, create{addresses, "", of(addresses), unicast})
	}
	pools.run(t, bad, []string{
		of("192.0.2.32/28"), of("192.0.2.1/32"), of("10.1.0.0/16"), of("2001:db8::/64"), of("fd00::5/128"),
		of("192.0.2.10-192.0.2.20"), of("192.0.2.10-192.0.2.10"), of("10.1.0.0-10.1.255.255"), of("fd00::a-fd00::14"), of("fd00::-fd00::ffff:ffff:ffff:ffff"),
		of("192.0.2.32/28") + `, autoAssign: false, nodeSelector: {matchLabels: {rack: a}}`,
		`addresses: [192.0.2.32/28, 198.51.100.10-198.51.100.20, "2001:db8::/120"]`,
		`addresses: [` + many(32, "fd00::1%d-fd00::ffff:ffff:ffff:ffff") + `]`,
	}, []update{
		{"more, fewer and other addresses", of("192.0.2.32/28"), `addresses: ["2001:db8::/120", 192.0.2.32/29]`, ""},
		{"choice and nodes", of("192.0.2.32/28"), of("192.0.2.32/28") + `, autoAssign: false, nodeSelector: {}`, ""},
		{"to bad addresses", of("192.0.2.32/28"), of("192.0.2.33/28"), form},
		{"none left", of("192.0.2.32/28"), `addresses: []`, `should have at least 1 items`},
	})
}

func TestSecurityGroups(t *testing.T) {
	groups := load(t, "securitygroups")
	of := func(rule string) string { return `rules: [{` + rule + `}]` }
	const (
		in    = "direction: Ingress"
		ports = "the ports must be portRangeMin to portRangeMax, from 1 on"
		icmp  = "of ICMP, portRangeMin is the type and portRangeMax the code: 0 to 255"
	)
	groups.run(t, []create{
		{"long name", strings.Repeat("g", 64), "", "metadata.name must not be longer than 63 characters"},
		{"no direction", "", of("protocol: tcp"), `spec.rules[0].direction: Required value`},
		{"other direction", "", of("direction: both"), `spec.rules[0].direction: Unsupported value: "both": supported values: "Ingress", "Egress"`},
		{"other family", "", of(in + ", etherType: IPX"), `spec.rules[0].etherType: Unsupported value: "IPX"`},
		{"unknown protocol", "", of(in + ", protocol: quic"), `spec.rules[0].protocol: Invalid value: "string": must be a protocol such as tcp, udp, sctp, icmp or icmpv6, or a number from 0 to 255, not "quic"`},
		{"large protocol", "", of(in + `, protocol: "256"`), "a number from 0 to 255"},
		{"protocol with a zero", "", of(in + `, protocol: "06"`), "a number from 0 to 255"},
		{"empty protocol", "", of(in + `, protocol: ""`), "must be a protocol"},
		{"prefix with host bits", "", of(in + ", remoteIPPrefix: 10.0.0.1/8"), `spec.rules[0].remoteIPPrefix: Invalid value: "string": must be a prefix in canonical form`},
		{"address", "", of(in + ", remoteIPPrefix: 10.0.0.1"), "must be an IPv4 or IPv6 prefix"},
		{"prefix of the other family", "", of(in + `, remoteIPPrefix: "fd00::/8"`), `spec.rules[0].remoteIPPrefix: Invalid value: "object": remoteIPPrefix must be of the family of etherType`},
		{"prefix of the other family, IPv6", "", of(in + `, etherType: IPv6, remoteIPPrefix: 10.0.0.0/8`), "must be of the family of etherType"},
		{"prefix and group", "", of(in + ", remoteIPPrefix: 10.0.0.0/8, remoteGroup: web"), `spec.rules[0].remoteGroup: Invalid value: "object": remoteIPPrefix and remoteGroup exclude each other`},
		{"bad group", "", of(in + ", remoteGroup: Web"), `spec.rules[0].remoteGroup: Invalid value: "string": must be the name of a SecurityGroup, or namespace/name, not "Web"`},
		{"group of three parts", "", of(in + ", remoteGroup: a/b/c"), "must be the name of a SecurityGroup, or namespace/name"},
		{"group of no namespace", "", of(in + ", remoteGroup: /c"), "must be the name of a SecurityGroup, or namespace/name"},
		{"empty group", "", of(in + `, remoteGroup: ""`), "must be the name of a SecurityGroup, or namespace/name"},
		{"ports of all protocols", "", of(in + ", portRangeMin: 80, portRangeMax: 80"), `spec.rules[0].portRangeMin: Invalid value: "object": portRangeMin is for tcp, udp, sctp, icmp and icmpv6`},
		{"ports of GRE", "", of(in + ", protocol: gre, portRangeMin: 80, portRangeMax: 80"), "portRangeMin is for tcp"},
		{"last port alone", "", of(in + ", protocol: tcp, portRangeMax: 80"), `spec.rules[0].portRangeMax: Invalid value: "object": portRangeMax needs portRangeMin`},
		{"first port alone", "", of(in + ", protocol: tcp, portRangeMin: 80"), ports},
		{"ports backwards", "", of(in + ", protocol: tcp, portRangeMin: 81, portRangeMax: 80"), ports},
		{"ports backwards, by number", "", of(in + `, protocol: "17", portRangeMin: 81, portRangeMax: 80`), ports},
		{"port 0", "", of(in + ", protocol: tcp, portRangeMin: 0, portRangeMax: 80"), ports},
		{"large port", "", of(in + ", protocol: tcp, portRangeMin: 80, portRangeMax: 65536"), "spec.rules[0].portRangeMax"},
		{"negative port", "", of(in + ", protocol: tcp, portRangeMin: -1, portRangeMax: 5"), "spec.rules[0].portRangeMin"},
		{"large ICMP type", "", of(in + ", protocol: icmp, portRangeMin: 256"), icmp},
		{"large ICMP code", "", of(in + ", protocol: icmp, portRangeMin: 8, portRangeMax: 256"), icmp},
		{"ICMPv6 of IPv4", "", of(in + ", protocol: icmpv6"), `spec.rules[0].protocol: Invalid value: "object": ICMP must be that of etherType`},
		{"ICMP of IPv6, by number", "", of(in + `, etherType: IPv6, protocol: "1"`), "ICMP must be that of etherType"},
		{"long description", "", of(in + ", description: " + strings.Repeat("d", 256)), "spec.rules[0].description"},
		{"257 rules", "", `rules: [` + many(257, `{direction: Egress, description: "%d"}`) + `]`, "spec.rules: Too many: 257: must have at most 256 items"},
	}, []string{
		``,
		`rules: []`,
		of(in), of("direction: Egress, etherType: IPv6"),
		of(in + ", protocol: tcp, portRangeMin: 80, portRangeMax: 80, remoteIPPrefix: 10.0.0.0/8"),
		of(in + `, protocol: "132", portRangeMin: 1, portRangeMax: 65535`),
		of(in + ", protocol: icmp, portRangeMin: 8"), of(in + ", protocol: icmp, portRangeMin: 0, portRangeMax: 0"),
		of(in + ", protocol: icmp"), of(in + ", etherType: IPv6, protocol: icmp, portRangeMin: 128"),
		of(in + `, etherType: IPv6, protocol: icmpv6, remoteIPPrefix: "::/0"`),
		of(in + `, protocol: "0", remoteGroup: web`), of(in + ", protocol: gre, remoteGroup: shop/web, description: from the shop"),
		`rules: [` + many(256, `{direction: Egress, protocol: tcp, portRangeMin: 1%d, portRangeMax: 20000, remoteIPPrefix: 10.0.0.0/8}`) + `]`,
	}, []update{
		{"rules", of(in), of("direction: Egress, protocol: tcp"), ""},
		{"to a bad rule", of(in), of(in + ", protocol: quic"), "must be a protocol"},
	})
}

func TestFloatingIPs(t *testing.T) {
	floatingIPs := load(t, "floatingips")
	const one = `network: office`
	floatingIPs.run(t, []create{
		{"no network", "", ``, `spec.network: Required value`},
		{"empty network", "", `network: ""`, `spec.network in body should be at least 1 chars long`},
		{"address with length", "", `network: office, address: 192.0.2.5/32`, `spec.address: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "192.0.2.5/32"`},
		{"address with zeros", "", `network: office, address: "2001:db8:0::5"`, `must be an IPv4 or IPv6 address in canonical form`},
		{"empty address", "", `network: office, address: ""`, `must be an IPv4 or IPv6 address`},
		{"link-local address", "", `network: office, address: "fe80::1"`, `spec.address: Invalid value: "string": must be a unicast address: not unspecified, loopback, link-local or multicast`},
		{"multicast address", "", `network: office, address: 224.0.0.5`, `must be a unicast address`},
		{"loopback address", "", `network: office, address: 127.0.0.1`, `must be a unicast address`},
		{"no such family", "", `network: office, ipFamily: IPv5`, `spec.ipFamily: Unsupported value: "IPv5"`},
		{"IPv4 of IPv6", "", `network: office, address: 192.0.2.5, ipFamily: IPv6`, `spec.ipFamily: Invalid value: "object": is not the family of address`},
		{"IPv6 of IPv4", "", `network: office, address: "2001:db8::5", ipFamily: ipv4`, `is not the family of address`},
		{"empty Port", "", `network: office, port: ""`, `spec.port in body should be at least 1 chars long`},
		{"long Port", "", `network: office, port: ` + strings.Repeat("p", 254), `spec.port: Too long: may not be more than 253 bytes`},
	}, []string{
		one,
		`network: office, port: web-0.eth0`,
		`network: office, address: 192.0.2.5, ipFamily: IPv4, port: vm`,
		`network: office, address: "2001:db8::5", ipFamily: ipv6`,
		`network: office, ipFamily: IPv6`,
	}, []update{
		{"network", one, `network: lab`, `spec.network: Invalid value: "object": network cannot be changed`},
		{"address", `network: office, address: 192.0.2.5`, `network: office, address: 192.0.2.6`, `spec.address: Invalid value: "object": address cannot be changed`},
		{"address given later", one, `network: office, address: 192.0.2.6`, `address cannot be changed`},
		{"address taken away", `network: office, address: 192.0.2.5`, one, `address cannot be changed`},
		{"family", `network: office, ipFamily: IPv4`, `network: office, ipFamily: IPv6`, `spec.ipFamily: Invalid value: "object": ipFamily cannot be changed`},
		{"family given later", one, `network: office, ipFamily: IPv6`, `ipFamily cannot be changed`},
		{"family taken away", `network: office, ipFamily: IPv4`, one, `ipFamily cannot be changed`},

		{"spelling of the family", `network: office, ipFamily: ipv4`, `network: office, ipFamily: IPv4`, ""},
		{"Port", `network: office, port: a`, `network: office, port: b`, ""},
		{"Port given and taken away", one, `network: office, port: b`, ""},
		{"Port taken away", `network: office, port: b`, one, ""},
	})
}
