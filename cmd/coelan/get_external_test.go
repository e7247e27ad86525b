// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
)

func lines(rows [][]any) (list []string) {
	for _, r := range rows {
		list = append(list, strings.TrimSpace(fmt.Sprintln(r...)))
	}
	return list
}

// inOffice is an address that is in effect, with the state of its gateway.
func inOffice(address string, hop *agentapi.NextHop) agentapi.ExternalAddress {
	return agentapi.ExternalAddress{
		Network: "office", Address: netip.MustParseAddr(address), InEffect: true, MAC: "0a:58:c6:33:64:20", NextHop: hop,
	}
}

func TestRowsOfFloatingIPs(t *testing.T) {
	gateway := netip.MustParseAddr("198.51.100.1")
	missing := agentapi.ExternalAddress{
		Network: "office", Address: netip.MustParseAddr("198.51.100.35"), Problem: `network "office" does not exist, or …`,
	}
	of := func(namespace, name, port string, a agentapi.ExternalAddress) agentapi.FloatingIPInfo {
		return agentapi.FloatingIPInfo{Namespace: namespace, Name: name, Port: namespace + "/" + port, ExternalAddress: a}
	}
	all := []ofNode[agentapi.FloatingIPInfo]{
		{"n1", of("red", "web", "web.eth0", inOffice("198.51.100.32", &agentapi.NextHop{Address: gateway, MAC: "02:00:00:00:00:01"}))},
		{"n1", of("red", "late", "late.eth0", inOffice("198.51.100.33", &agentapi.NextHop{Address: gateway}))},
		{"n1", of("red", "kept", "kept.eth0", inOffice("198.51.100.34", &agentapi.NextHop{
			Address: gateway, MAC: "02:00:00:00:00:01", Silent: true,
		}))},
		{"n2", of("blue", "db", "vm", missing)},
		{"n2", of("blue", "alone", "vm", inOffice("198.51.100.36", nil))},
		{"n2", agentapi.FloatingIPInfo{Namespace: "blue", Name: "shop", Service: "blue/shop", ExternalAddress: inOffice("198.51.100.37", nil)}},
	}
	want := []string{
		"blue/alone office 198.51.100.36 blue/vm n2 0a:58:c6:33:64:20 in effect",
		`blue/db office 198.51.100.35 blue/vm n2 - not in effect: network "office" does not exist, or …`,
		"blue/shop office 198.51.100.37 Service blue/shop n2 0a:58:c6:33:64:20 in effect",
		"red/kept office 198.51.100.34 red/kept.eth0 n1 0a:58:c6:33:64:20 in effect, gateway 198.51.100.1 does not answer",
		"red/late office 198.51.100.33 red/late.eth0 n1 0a:58:c6:33:64:20 in effect, gateway 198.51.100.1 is asked for",
		"red/web office 198.51.100.32 red/web.eth0 n1 0a:58:c6:33:64:20 in effect",
	}
	if diff := cmp.Diff(want, lines(floatingIPRows(all))); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestRowsOfGateways(t *testing.T) {
	of := func(router, address string, translations *agentapi.Translations) agentapi.GatewayInfo {
		return agentapi.GatewayInfo{
			Router: router, ExternalAddress: inOffice(address, nil), Translations: translations,
		}
	}
	routed := of("shop", "198.51.100.44", nil)
	routed.Routed = true
	all := []ofNode[agentapi.GatewayInfo]{
		{"n2", of("red", "198.51.100.41", &agentapi.Translations{Count: 3, Limit: 300})},
		{"n1", of("red", "2001:db8::40", nil)},
		{"n1", of("red", "198.51.100.40", &agentapi.Translations{Count: 301, Limit: 300})},
		{"n1", of("blue", "198.51.100.42", &agentapi.Translations{Count: 7})},
		{"n1", routed},
		{"n1", of("green", "198.51.100.43", nil)},
	}
	const mac = "0a:58:c6:33:64:20 in effect"
	want := []string{
		"blue office 198.51.100.42 n1 " + mac + " 7 -",
		"green office 198.51.100.43 n1 " + mac + " - -",
		"red office 198.51.100.40 n1 " + mac + " 301 0",
		"red office 2001:db8::40 n1 " + mac + " - -",
		"red office 198.51.100.41 n2 " + mac + " 3 297",
		"shop office 198.51.100.44 n1 " + mac + " none -",
	}
	if diff := cmp.Diff(want, lines(gatewayRows(all))); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Nodes may see different nodes active; and more than one may answer, which is to be seen.
func TestRowsOfEgress(t *testing.T) {
	of := func(egress, address, active string, answers bool) agentapi.EgressInfo {
		a := agentapi.ExternalAddress{Network: "office", Address: netip.MustParseAddr(address)}
		a.InEffect = answers
		return agentapi.EgressInfo{
			Egress: egress, Router: "red", ExternalAddress: a, Nodes: []string{"n1", "n2"}, Active: active,
		}
	}
	all := []ofNode[agentapi.EgressInfo]{
		{"n1", of("", "198.51.100.50", "n1", true)},
		{"n1", of("partners", "198.51.100.51", "n1", true)},
		{"n1", of("fresh", "198.51.100.52", "", false)},
		{"n2", of("partners", "198.51.100.51", "n2", true)},
		{"n2", of("", "198.51.100.50", "n1", false)},
		{"n2", of("fresh", "198.51.100.52", "", false)},
		{"n3", of("partners", "198.51.100.51", "n1", false)},
	}
	want := []string{
		"egress/fresh office 198.51.100.52 n1,n2 - -",
		"egress/partners office 198.51.100.51 n1,n2 n1 (as seen by n1,n3), n2 (as seen by n2) n1,n2",
		"router/red office 198.51.100.50 n1,n2 n1 n1",
	}
	if diff := cmp.Diff(want, lines(egressRows(all))); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
