// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// peerCases judge by the other side's address.
func (w *world) peerCases() []policyCase {
	a, b, c := w.a, w.b, w.c
	return []policyCase{
		{"pods", []governed{{pod: c, ingress: true, rules: []intent.Rule{rule(1, intent.Ingress, of(b))}}},
			[]attempt{tcp(a.Host, c, 8080), ping(a, c)}, []attempt{tcp(b.Host, c, 8080), ping(b, c), tcp(c.Host, a, 8080)}},
		{"ipBlock", []governed{{pod: c, ingress: true, rules: []intent.Rule{rule(1, intent.Ingress, blocks(a))}}},
			[]attempt{tcp(b.Host, c, 8080)}, []attempt{tcp(a.Host, c, 8080)}},
		{"the own node", []governed{{pod: c, ingress: true}},
			[]attempt{tcp(a.Host, c, 8080), tcp(w.n1.Host, c, 8080), tcpAt("c by a node port", w.Outside, byNodePort(w.n2, 61))},
			[]attempt{tcp(w.n2.Host, c, 8080)}},
		{"itself by a Service", []governed{{pod: c, ingress: true}},
			[]attempt{tcpAt("c by a Service", a.Host, byClusterIP(61))}, []attempt{tcpAt("itself by a Service", c.Host, byClusterIP(61))}},
		{"closed", []governed{{pod: c, closed: "its SecurityGroup does not exist"}},
			[]attempt{tcp(a.Host, c, 8080), tcp(c.Host, a, 8080)}, []attempt{tcp(w.n2.Host, c, 8080), tcp(a.Host, b, 8080)}},
	}
}

// portCases judge by protocol and port.
func (w *world) portCases() []policyCase {
	a, b, c := w.a, w.b, w.c
	only := func(name string, port intent.PortRange, denied, allowed []attempt) policyCase {
		rules := []intent.Rule{rule(1, intent.Ingress, ports(anyone, port))}
		return policyCase{name, []governed{{pod: c, ingress: true, rules: rules}}, denied, allowed}
	}
	pinged := func(name string, four, six intent.PortRange, fits bool) policyCase {
		rules := []intent.Rule{rule(1, intent.Ingress, ports(anyone, four, six))}
		c := policyCase{name, []governed{{pod: c, ingress: true, rules: rules}}, []attempt{tcp(a.Host, c, 8080)}, nil}
		if fits {
			c.allowed = append(c.allowed, ping(a, w.c))
		} else {
			c.denied = append(c.denied, ping(a, w.c))
		}
		return c
	}
	named := rule(1, intent.Ingress, ports(anyone, portRange(intent.TCP, 8081, 8081)))
	named.ID += "/web=8081"
	return []policyCase{
		only("a port", portRange(intent.TCP, 8080, 8080), []attempt{tcp(a.Host, c, 8081), ping(a, c)}, []attempt{tcp(a.Host, c, 8080)}),
		only("a range of ports", portRange(intent.TCP, 8081, 8082), []attempt{tcp(a.Host, c, 8080)},
			[]attempt{tcp(a.Host, c, 8081), tcp(a.Host, c, 8082)}),
		only("all of TCP", portRange(intent.TCP, 0, 0xffff), []attempt{udp(a, c, 5000)}, []attempt{tcp(a.Host, c, 8080)}),
		only("a port of UDP", portRange(intent.UDP, 5000, 5000), []attempt{udp(a, c, 5001), tcp(a.Host, c, 8080)},
			[]attempt{udp(a, c, 5000)}),
		only("another protocol", intent.PortRange{Protocol: 253, Last: 0xffff}, []attempt{datagram(a, c, 254)},
			[]attempt{datagram(a, c, 253)}),
		{"ICMP", []governed{{pod: c, ingress: true, rules: []intent.Rule{rule(1, intent.Ingress, ports(anyone,
			intent.PortRange{Protocol: 1, Last: 0xffff}, intent.PortRange{Protocol: 58, Last: 0xffff}))}}},
			[]attempt{tcp(a.Host, c, 8080)}, []attempt{ping(a, c)}},
		pinged("an ICMP type", icmp(1, 8, intent.AnyICMPCode), icmp(58, 128, intent.AnyICMPCode), true),
		pinged("another ICMP type", icmp(1, 13, intent.AnyICMPCode), icmp(58, 127, intent.AnyICMPCode), false),
		pinged("an ICMP code", icmp(1, 8, 0), icmp(58, 128, 0), true),
		pinged("another ICMP code", icmp(1, 8, 1), icmp(58, 128, 1), false),
		{"a named port of one pod", []governed{{pod: c, ingress: true, rules: []intent.Rule{named}}, {pod: b, ingress: true}},
			[]attempt{tcp(a.Host, c, 8080), tcp(a.Host, b, 8081)}, []attempt{tcp(a.Host, c, 8081)}},
	}
}

// egressCases judge what pods send, behind Services.
func (w *world) egressCases() []policyCase {
	a, b, c := w.a, w.b, w.c
	cases := []policyCase{
		{"to pods", []governed{{pod: a, egress: true, rules: []intent.Rule{rule(1, intent.Egress, of(b))}}},
			[]attempt{tcp(a.Host, c, 8080), tcpAt("a Service of c", a.Host, byClusterIP(61))},
			[]attempt{tcp(a.Host, b, 8080), tcpAt("a Service of b", a.Host, byClusterIP(60)), tcp(c.Host, a, 8080)}},
		{"to a port of an ipBlock", []governed{{pod: a, egress: true,
			rules: []intent.Rule{rule(1, intent.Egress, ports(blocks(c), portRange(intent.TCP, 8081, 8081)))}}},
			[]attempt{tcp(a.Host, c, 8080), tcp(a.Host, b, 8081)},
			[]attempt{tcp(a.Host, c, 8081), tcpAt("a Service of c", a.Host, byClusterIP(61))}},
	}
	if w.backend != config.OVNBackend {
		return cases // broadcasts of pods on the network default reach no others
	}
	for i, exempt := range []struct {
		name     string
		src, dst string
		exempt   bool
	}{
		{"multicast", "", "224.0.0.251:5353", true}, {"DHCP", "0.0.0.0:68", "255.255.255.255:67", true},
		{"other broadcasts", "", "255.255.255.255:69", false},
	} {
		tried := []attempt{w.flooded(exempt.src, exempt.dst)}
		pods := []governed{{pod: a, egress: true}}
		denied := []attempt{tcp(a.Host, b, 8080)}
		if exempt.exempt {
			cases = append(cases, policyCase{exempt.name, pods, denied, tried})
		} else {
			cases = append(cases, policyCase{fmt.Sprint(exempt.name, i), pods, append(denied, tried...), nil})
		}
	}
	return cases
}

// tierCases have several policies be about a pod.
func (w *world) tierCases() []policyCase {
	a, b, c := w.a, w.b, w.c
	admin := func(number int, tier intent.Tier, action intent.Action, peers func(*intent.Rule)) intent.Rule {
		return rule(number, intent.Ingress, func(r *intent.Rule) {
			peers(r)
			r.Policy, r.Tier, r.Action, r.Priority = cluster, tier, action, 10
		})
	}
	secure := rule(1, intent.Ingress, func(r *intent.Rule) {
		ports(of(b), portRange(intent.TCP, 8080, 8080))(r)
		r.Policy, r.Tier = security, intent.SecurityGroupTier
	})
	return []policyCase{
		{"Admin denies", []governed{{pod: c, ingress: true, rules: []intent.Rule{
			admin(1, intent.AdminTier, intent.Deny, of(a)), rule(1, intent.Ingress, anyone)}}},
			[]attempt{tcp(a.Host, c, 8080)}, []attempt{tcp(b.Host, c, 8080)}},
		{"Admin allows, in order", []governed{{pod: c, ingress: true, rules: []intent.Rule{
			admin(1, intent.AdminTier, intent.Allow, of(a)), admin(2, intent.AdminTier, intent.Deny, anyone)}}},
			[]attempt{tcp(b.Host, c, 8080)}, []attempt{tcp(a.Host, c, 8080)}},
		{"Admin passes", []governed{{pod: c, ingress: true, rules: []intent.Rule{
			admin(1, intent.AdminTier, intent.Pass, of(b)), admin(2, intent.AdminTier, intent.Deny, anyone),
			rule(1, intent.Ingress, ports(anyone, portRange(intent.TCP, 8081, 8081)))}}},
			[]attempt{tcp(a.Host, c, 8081), tcp(b.Host, c, 8080)}, []attempt{tcp(b.Host, c, 8081)}},
		{"Baseline denies", []governed{{pod: c, rules: []intent.Rule{admin(1, intent.BaselineTier, intent.Deny, of(a))}}},
			[]attempt{tcp(a.Host, c, 8080)}, []attempt{tcp(b.Host, c, 8080)}},
		{"a NetworkPolicy before Baseline", []governed{{pod: c, ingress: true, rules: []intent.Rule{
			admin(1, intent.BaselineTier, intent.Deny, anyone), rule(1, intent.Ingress, of(a))}}},
			[]attempt{tcp(b.Host, c, 8080)}, []attempt{tcp(a.Host, c, 8080)}},
		{"a SecurityGroup", []governed{{pod: c, security: true, rules: []intent.Rule{secure}}},
			[]attempt{tcp(a.Host, c, 8080), tcp(b.Host, c, 8081), tcp(c.Host, a, 8080)}, []attempt{tcp(b.Host, c, 8080)}},
		{"a SecurityGroup and a NetworkPolicy", []governed{{pod: c, ingress: true, security: true, rules: []intent.Rule{
			secure, rule(1, intent.Ingress, ports(of(a, b), portRange(intent.TCP, 8080, 8081)))}}},
			[]attempt{tcp(a.Host, c, 8080), tcp(b.Host, c, 8081)}, []attempt{tcp(b.Host, c, 8080)}},
	}
}

// blocks are pods' addresses.
func blocks(pods ...*lab.Pod) func(*intent.Rule) {
	return func(r *intent.Rule) {
		for f := range lab.Dual.Each {
			for _, p := range pods {
				r.Blocks = append(r.Blocks, netip.PrefixFrom(p.Address(f), p.Address(f).BitLen()))
			}
		}
	}
}

func icmp(protocol uint8, typ, code uint16) intent.PortRange {
	return intent.PortRange{Protocol: protocol, First: typ, Last: code, ICMP: true}
}

// datagram has a packet of a protocol without ports arrive, which nothing answers.
func datagram(from, to *lab.Pod, protocol int) attempt {
	return attempt{fmt.Sprintf("%s to %s by protocol %d", from.Name, to.Name, protocol), func(ctx context.Context, f lab.Family) error {
		network := fmt.Sprintf("ip%s:%d", map[lab.Family]string{lab.IPv4: "4", lab.IPv6: "6"}[f], protocol)
		address := func(p *lab.Pod) *net.IPAddr { return &net.IPAddr{IP: p.Address(f).AsSlice()} }
		var in, out *net.IPConn
		err := to.Do(func() (err error) { in, err = net.ListenIP(network, address(to)); return err })
		if err != nil {
			return err
		}
		defer in.Close()
		if err = from.Do(func() (err error) { out, err = net.DialIP(network, nil, address(to)); return err }); err != nil {
			return err
		}
		defer out.Close()
		if _, err := out.Write([]byte("coelan")); err != nil {
			return err
		}
		deadline, _ := ctx.Deadline()
		if err := in.SetReadDeadline(deadline); err != nil {
			return err
		}
		_, _, err = in.ReadFromIP(make([]byte, 100))
		return err
	}}
}

// flooded has a datagram of a that all of its switch gets arrive at b. There are none of IPv6.
func (w *world) flooded(src, dst string) attempt {
	return attempt{"a to all at " + dst, func(ctx context.Context, _ lab.Family) error {
		from := netip.AddrPortFrom(w.a.Address(lab.IPv4), 4000)
		if src != "" {
			from = netip.MustParseAddrPort(src)
		}
		to := netip.MustParseAddrPort(dst)
		out, err := probe.OpenWire(w.a.Host, "eth0")
		if err != nil {
			return err
		}
		defer out.Close()
		in, err := probe.OpenWire(w.b.Host, "eth0")
		if err != nil {
			return err
		}
		defer in.Close()
		mac, err := w.mac(w.a)
		if err != nil {
			return err
		}
		all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		if err := out.Send(probe.Ethernet(mac, all, 0x0800, probe.UDP(from, to, []byte("coelan")))); err != nil {
			return err
		}
		_, err = in.Wait(ctx, func(f probe.Frame) bool {
			_, at := f.IPs()
			return at == to.Addr()
		})
		return err
	}}
}

func (w *world) mac(p *lab.Pod) (mac net.HardwareAddr, err error) {
	err = p.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	return mac, err
}
