// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

var comparable = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestBadAnnotations(t *testing.T) {
	const npwg, nfn = AnnotationNetworks, AnnotationNFNNetwork
	for _, tt := range []struct{ name, annotation, value, want string }{
		{"not closed", npwg, `[{"name":"a"`, `annotation k8s.v1.cni.cncf.io/networks "[{\"name\":\"a\"": malformed JSON at byte 12: unexpected end of JSON input`},
		{"trailing comma", npwg, `[{"name":"a"},]`, `malformed JSON at byte 15`},
		{"an object", npwg, `{"name":"a"}`, `annotation k8s.v1.cni.cncf.io/networks "{\"name\":\"a\"}": a JSON object where a list should be`},
		{"list of names", npwg, `["a"]`, `annotation k8s.v1.cni.cncf.io/networks, element 1 "\"a\"": a JSON string where an object should be`},
		{"null in the list", npwg, `[{"name":"a"},null]`, `element 2 "null": null where an object should be`},
		{"no name", npwg, `[{"interface":"net1"}]`, `element 1, name "": is not an object's name`},
		{"name in capitals", npwg, `[{"name":"A"}]`, `element 1, name "A": is not an object's name`},
		{"name with a slash", npwg, `[{"name":"ns/a"}]`, `element 1, name "ns/a": is not an object's name`},
		{"name is a number", npwg, `[{"name":1}]`, `element 1, name "1": a JSON number where a string should be`},
		{"bad namespace", npwg, `[{"name":"a","namespace":"-"}]`, `element 1, namespace "-": is not an object's name`},
		{"interface too long", npwg, `[{"name":"a"},{"name":"b","interface":"sixteencharacter"}]`, `element 2, interface "sixteencharacter": is not an interface's name`},
		{"interface with a slash", npwg, `[{"name":"a","interface":"a/b"}]`, `element 1, interface "a/b"`},
		{"bad address", npwg, `[{"name":"a","ips":["10.0.0.1","10.0.0"]}]`, `element 1, ips[1] "10.0.0": is not an IP address`},
		{"address with a zone", npwg, `[{"name":"a","ips":["fe80::1%eth0"]}]`, `element 1, ips[0] "fe80::1%eth0": is not an IP address`},
		{"one address", npwg, `[{"name":"a","ips":"10.0.0.1"}]`, `element 1, ips "\"10.0.0.1\"": a JSON string where a list should be`},
		{"bad MAC", npwg, `[{"name":"a","mac":"0a:00:00"}]`, `element 1, mac "0a:00:00": is not a MAC address of six bytes`},
		{"EUI-64", npwg, `[{"name":"a","mac":"02:00:5e:10:00:00:00:01"}]`, `element 1, mac "02:00:5e:10:00:00:00:01"`},
		{"bad gateway", npwg, `[{"name":"a","default-route":["gw"]}]`, `element 1, default-route[0] "gw": is not an IP address`},
		{"two gateways of a family", npwg, `[{"name":"a","default-route":["10.0.0.1","10.0.0.2"]}]`, `element 1, default-route[1] "10.0.0.2": is the second gateway of its family`},
		{"two default routes", npwg, `[{"name":"a","default-route":[]},{"name":"b","default-route":["10.0.0.1"]}]`,
			`element 2, default-route "[10.0.0.1]": element 1 asks for the default route too`},
		{"the same interface twice", npwg, `[{"name":"a","interface":"net7"},{"name":"b","interface":"net7"}]`,
			`element 2, interface "net7": annotation k8s.v1.cni.cncf.io/networks, element 1 has the same`},
		{"a made name twice", npwg, `[{"name":"a","interface":"net2"},{"name":"b"}]`, `element 2, interface "net2"`},
		{"long value", npwg, `[` + strings.Repeat("x", 300), `…: malformed JSON at byte 2`},

		{"short: empty element", npwg, `a,,b`, `element 2, name "": is not an object's name`},
		{"short: trailing comma", npwg, `a,`, `element 2, name ""`},
		{"short: bad name", npwg, `a,b_c`, `element 2, name "b_c": is not an object's name`},
		{"short: two slashes", npwg, `x/y/z`, `element 1, name "y/z"`},
		{"short: two at signs", npwg, `a@b@c/d`, `element 1, interface "b@c/d"`},
		{"short: no interface", npwg, `a@`, `element 1, interface "a@": is empty`},
		{"short: interface too long", npwg, `a@sixteencharacter`, `element 1, interface "sixteencharacter"`},

		{"nfn: malformed", nfn, `{"type":`, `annotation k8s.plugin.opnfv.org/nfn-network "{\"type\":": malformed JSON at byte 8`},
		{"nfn: null", nfn, `null`, `null where an object should be`},
		{"nfn: a list", nfn, `[]`, `a JSON array where an object should be`},
		{"nfn: another type", nfn, `{"type":"calico","interface":[]}`, `annotation k8s.plugin.opnfv.org/nfn-network, type "calico": is neither ovn4nfv nor coelan`},
		{"nfn: no interfaces", nfn, `{"type":"ovn4nfv"}`, `interface "{\"type\":\"ovn4nfv\"}": is missing`},
		{"nfn: interface is no list", nfn, `{"interface":{}}`, `a JSON object where a list should be`},
		{"nfn: no name", nfn, `{"interface":[{"interface":"net0"}]}`, `element 1, name "": is missing`},
		{"nfn: no interface", nfn, `{"interface":[{"name":"a"}]}`, `element 1, interface "": is missing`},
		{"nfn: bad boolean", nfn, `{"interface":[{"name":"a","interface":"net0","defaultGateway":"yes"}]}`, `element 1, defaultgateway "\"yes\"": is neither "true" nor "false"`},
		{"nfn: bad address", nfn, `{"interface":[{"name":"a","interface":"net0","ipAddress":"10.0.0.300"}]}`, `element 1, ipaddress[0] "10.0.0.300": is not an IP address`},
		{"nfn: bad MAC", nfn, `{"interface":[{"name":"a","interface":"net0","macAddress":"x"}]}`, `element 1, macaddress "x": is not a MAC`},
		{"nfn: bad gateway", nfn, `{"interface":[{"name":"a","interface":"net0","gwipaddress":"x"}]}`, `element 1, gwipaddress[0] "x": is not an IP address`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(map[string]string{tt.annotation: tt.value}, "default")
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, %v, want an *Error", got, err)
			}
			if !strings.Contains(err.Error(), tt.want) || bad.Annotation != tt.annotation {
				t.Errorf("error %s\nwant  %s", err, tt.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	mac := intent.MAC{0x0a, 0, 0, 0, 0, 1}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        []Request
	}{
		{"none", nil, nil},
		{"empty", map[string]string{AnnotationNetworks: "  ", AnnotationNFNNetwork: ""}, nil},
		{"empty lists", map[string]string{AnnotationNetworks: "[]", AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[]}`}, nil},
		{"short form", map[string]string{AnnotationNetworks: " red , other/blue@data,green.v2@net9"}, []Request{
			{Namespace: "shop", Name: "red", Interface: "net1"},
			{Namespace: "other", Name: "blue", Interface: "data"},
			{Namespace: "shop", Name: "green.v2", Interface: "net9"},
		}},
		{"long form", map[string]string{AnnotationNetworks: `[
			{"name":"red","ips":["10.1.0.9/24","fd01::9"],"mac":"0A:00:00:00:00:01","default-route":["10.1.0.254","fd01::fe"]},
			{"name":"blue","namespace":"other","interface":"data","cni-args":{"x":1},"bandwidth":{},"portMappings":[],"ips":null},
			{"name":"green"}]`}, []Request{
			{Namespace: "shop", Name: "red", Interface: "net1", Requested: attachment.Requested{Addresses: addrs("10.1.0.9", "fd01::9"), MAC: &mac,
				DefaultRoute: true, Gateways: addrs("10.1.0.254", "fd01::fe")}},
			{Namespace: "other", Name: "blue", Interface: "data", Ignored: []string{"bandwidth", "cni-args", "portMappings"}},
			{Namespace: "shop", Name: "green", Interface: "net3"},
		}},
		{"default route by the network's own gateway", map[string]string{AnnotationNetworks: `[{"name":"red","default-route":[]}]`},
			[]Request{{Namespace: "shop", Name: "red", Interface: "net1", Requested: attachment.Requested{DefaultRoute: true}}}},
		{"nfn", map[string]string{AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[
			{"name":"ovn-port-net","interface":"net0","defaultGateway":"false"},
			{"name":"ovn-priv-net","interface":"net1","defaultGateway":"true","ipAddress":"172.16.44.9","macAddress":"0a:00:00:00:00:01","gwipaddress":"172.16.44.201"}]}`},
			[]Request{
				{Network: "ovn-port-net", Interface: "net0"},
				{Network: "ovn-priv-net", Interface: "net1", Requested: attachment.Requested{DefaultRoute: true, Addresses: addrs("172.16.44.9"), MAC: &mac, Gateways: addrs("172.16.44.201")}},
			}},
		{"nfn: keys in any case, true booleans, several addresses", map[string]string{AnnotationNFNNetwork: `{"Interface":[
			{"NAME":"a","Interface":"net0","DEFAULTGATEWAY":true,"IPaddress":["10.0.0.9/24","fd00::9"],"netType":"virtual"},
			{"name":"b","interface":"net1","defaultgateway":"TRUE","IPAddress":"10.1.0.9,fd01::9"}]}`},
			[]Request{
				{Network: "a", Interface: "net0", Requested: attachment.Requested{DefaultRoute: true, Addresses: addrs("10.0.0.9", "fd00::9")}, Ignored: []string{"nettype"}},
				{Network: "b", Interface: "net1", Requested: attachment.Requested{Addresses: addrs("10.1.0.9", "fd01::9")}, Ignored: []string{"defaultgateway"}},
			}},
		{"nfn: the pod's first interface", map[string]string{AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[
			{"name":"ovn4nfvk8s-default-nw","ipAddress":"10.244.1.9"}]}`},
			[]Request{{Primary: true, Requested: attachment.Requested{Addresses: addrs("10.244.1.9")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.annotations, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, comparable, cmpopts.IgnoreFields(Request{}, "Annotation", "Position")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBothAnnotations(t *testing.T) {
	nfn := func(name, gateway string) string {
		return `{"interface":[{"name":"b","interface":"` + name + `","defaultGateway":"` + gateway + `"}]}`
	}
	got, err := Parse(map[string]string{AnnotationNetworks: "a", AnnotationNFNNetwork: nfn("net9", "true")}, "shop")
	if err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{Annotation: AnnotationNetworks, Position: 1, Namespace: "shop", Name: "a", Interface: "net1"},
		{Annotation: AnnotationNFNNetwork, Position: 1, Network: "b", Interface: "net9", Requested: attachment.Requested{DefaultRoute: true}},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ networks, nfn, want string }{
		{"a", nfn("net1", "false"), `annotation k8s.plugin.opnfv.org/nfn-network, element 1, interface "net1": annotation k8s.v1.cni.cncf.io/networks, element 1 has the same`},
		{`[{"name":"a","default-route":[]}]`, nfn("net2", "true"), `element 1, interface "net2": asks for the default route, which annotation k8s.v1.cni.cncf.io/networks, element 1 has`},
	} {
		_, err := Parse(map[string]string{AnnotationNetworks: tt.networks, AnnotationNFNNetwork: tt.nfn}, "shop")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v\nwant  %s", err, tt.want)
		}
	}
}

// Whatever a pod's annotation says: no panic, and what is accepted can be made.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a", "ns/a@net1,b", `[{"name":"a","ips":["10.0.0.1/24"],"mac":"0a:00:00:00:00:01","default-route":[]}]`, `[null]`,
		`{"type":"ovn4nfv","interface":[{"name":"a","interface":"net0","defaultGateway":"true","ipAddress":"10.0.0.9"}]}`,
		`{"interface":[{"Name":"default","IPAddress":["fd00::1"]}]}`,
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, networks, nfn string) {
		got, err := Parse(map[string]string{AnnotationNetworks: networks, AnnotationNFNNetwork: nfn}, "shop")
		if err != nil {
			var bad *Error
			if !errors.As(err, &bad) || len(err.Error()) > 2000 {
				t.Fatalf("error of %d bytes: %v", len(err.Error()), err)
			}
			return
		}
		names := map[string]bool{}
		for _, r := range got {
			named := r.Primary != (r.Interface != "") && (r.Interface == "" || !names[r.Interface]) && len(r.Interface) < 16
			if !named || r.Name == "" && r.Network == "" && !r.Primary || r.Name != "" && r.Namespace == "" {
				t.Fatalf("accepted %+v", r)
			}
			names[r.Interface] = true
			for _, a := range append(r.Addresses, r.Gateways...) {
				if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
					t.Fatalf("accepted the address %v", a)
				}
			}
		}
	})
}
